"""The tokens of an index's texts in a file: written whole or not at all, read without trust."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llama_pack_densex.retrieval.lexical_texts import DIGEST_BYTES, TokenisedTexts

logger = logging.getLogger(__name__)

FILE = "lexical.npz"
SCHEMA = 1
"""The version of the file's layout, and of what the tokenizers of this package make of a text."""

_ABANDONED = 3600.0  # seconds after which an unfinished file is one of a process that was killed


def write_texts(texts: TokenisedTexts, folder: Path) -> None:
    """Write tokenised texts into a folder; a stop in between leaves what was there before.

    Like the index beside it, the file holds the words of the documents.
    """
    temporary = folder / f".{FILE}.{uuid.uuid4().hex}"
    try:
        with temporary.open("wb") as stream:
            np.savez(
                stream,
                about=_packed({"schema": SCHEMA, "tokenizer": texts.tokenizer}),
                vocabulary=_packed(list(texts.vocabulary)),
                digests=np.frombuffer(b"".join(texts.digests), dtype=np.uint8),
                lengths=texts.lengths.astype(np.int32),
                tokens=texts.tokens.astype(np.int32),
            )
        temporary.replace(folder / FILE)
    finally:
        temporary.unlink(missing_ok=True)
    for left_over in folder.glob(f".{FILE}.*"):
        with suppress(FileNotFoundError):  # another process finished or removed it
            if time.time() - left_over.stat().st_mtime > _ABANDONED:
                left_over.unlink()


def read_tokenizer(folder: Path) -> str | None:
    """The name of the tokenizer that split the texts in a folder; None where there is no file that says so."""
    try:
        with np.load(folder / FILE, allow_pickle=False) as content:
            return str(_about(content)["tokenizer"])
    except Exception:  # `read_texts` meets it again and reports it
        return None


def read_texts(folder: Path) -> TokenisedTexts | None:
    """Read what `write_texts` wrote; None where there is nothing, or nothing that can be used."""
    file = folder / FILE
    try:
        return _read(file)
    except FileNotFoundError:
        logger.info("There is no lexical index in %s yet.", folder)
    except Exception as error:  # numpy raises many kinds of them over damaged files; all are mended by a new one
        logger.info("The lexical index %s cannot be used (%s).", file, str(error) or type(error).__name__)
    return None


def _read(file: Path) -> TokenisedTexts:
    with np.load(file, allow_pickle=False) as content:  # a pickle in an index from elsewhere could run code
        about, words = _about(content), _unpacked(content["vocabulary"])
        digests = content["digests"].tobytes()
        lengths, tokens = content["lengths"].astype(np.int64), content["tokens"].astype(np.int64)
    vocabulary = {str(token): number for number, token in enumerate(words)}
    fits = (
        lengths.ndim == tokens.ndim == 1
        and len(digests) == DIGEST_BYTES * len(lengths)
        and len(vocabulary) == len(words)
        and lengths.min(initial=0) >= 0
        and lengths.sum() == len(tokens)
        and tokens.min(initial=0) >= 0
        and tokens.max(initial=-1) < len(vocabulary)
    )
    if not fits:
        raise ValueError("its parts do not fit together")
    return TokenisedTexts(
        str(about["tokenizer"]),
        vocabulary,
        tuple(digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES)),
        lengths,
        tokens,
    )


def _about(content: Mapping[str, Any]) -> Any:
    about = _unpacked(content["about"])
    if about["schema"] != SCHEMA:
        raise ValueError(f"its layout is {about['schema']}, not {SCHEMA}")
    return about


def _packed(value: object) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode("ascii"), dtype=np.uint8)


def _unpacked(array: npt.NDArray[np.uint8]) -> Any:
    return json.loads(array.tobytes().decode("ascii"))
