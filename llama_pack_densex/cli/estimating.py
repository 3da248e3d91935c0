"""What `densex estimate` reads, and the parser that it estimates for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_pack_densex.cli.choices import make_llm
from llama_pack_densex.cli.datasets import split_datasets
from llama_pack_densex.cli.planning import document_hashes, planned_parser, unasked_llm
from llama_pack_densex.cli.session import one_line, progress, warn
from llama_pack_densex.ingestion.estimate import Estimate, estimate
from llama_pack_densex.models import E5, NONE, cached_model
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer
from llama_pack_densex.reading import UnreadableFileError, document_ids, find_files, read_file
from llama_pack_densex.stores.folder import REPLIES_FILE
from llama_pack_densex.stores.manifest import Manifest, is_index

if TYPE_CHECKING:
    from llama_index.core.llms import LLM
    from llama_index.core.schema import Document

    from llama_pack_densex.propositionizers.base import Propositionizer


@dataclass(frozen=True)
class EstimateChoices:
    """The options of `densex estimate`; None and empty mean the index's own, or the default.

    Args:
        llm_model: The name of a model; "none" for sentences.
        embed_model: The name of an embedding model; "none" for none.
        dimension: Of its vectors.
        mode: "recursive" or "auto_merging".
        granularity: The units to search.
        sample: Passages to ask for.
        limits: Arguments of `LLMPropositionizer`.
    """

    llm_model: str
    embed_model: str | None
    dimension: int | None
    mode: str | None
    granularity: tuple[str, ...]
    sample: int
    limits: Mapping[str, Any]


def estimate_paths(paths: Sequence[Path], to: Path | None, choices: EstimateChoices) -> Estimate:
    """Estimate what it takes to index the documents of files and datasets.

    Args:
        paths: Folders, files and datasets.
        to: The folder of an index, which need not exist: what is in it does not count, and the replies of a sample are
            kept in it.
        choices: What would make the index.

    Raises:
        ValueError: There is nothing to read, or a choice cannot be used.
        OSError: A path does not exist.
    """
    manifest = Manifest.read(to) if to is not None and is_index(to) else None
    propositionizer = _propositionizer(choices)
    if to is not None and (choices.sample or (to / REPLIES_FILE).exists()):
        propositionizer = propositionizer.keeping_replies(to / REPLIES_FILE)
    parser = planned_parser(manifest, propositionizer, choices.mode, choices.granularity)
    if manifest is not None and manifest.propositionizer != propositionizer.fingerprint:
        warn(f"the propositions in {one_line(str(to))} were made otherwise, so that all documents count as new")
    found = estimate(
        _documents(paths, to),
        parser,
        prices=choices.limits.get("prices"),
        embed_model_name=_embed_model(choices, manifest),
        dimension=choices.dimension,
        sample=choices.sample,
        indexed=document_hashes(to, manifest),
    )
    if not found.documents and not found.unchanged_documents and not found.broken_documents:
        raise ValueError(f"{', '.join(map(str, paths))}: there is no file to read")
    return found


def _documents(paths: Sequence[Path], to: Path | None) -> Iterator[Document]:
    """Documents one after the other: those of datasets, then those of files."""
    documents, rest = split_datasets(paths)
    yield from documents
    files, unreadable = find_files(rest, leave_out=[to] if to is not None else [])
    ids = document_ids(files, {})
    with progress("Reading files") as bar:
        for file in bar.track(files):
            try:
                documents = read_file(file.path, ids[file.path])
            except UnreadableFileError as error:
                unreadable.append(error.unreadable)
                continue
            yield from (document for document in documents if document.text.strip())
    for left_out in unreadable:
        warn(f"skipped: {one_line(str(left_out.path))} {left_out.reason}")


def _propositionizer(choices: EstimateChoices) -> Propositionizer:
    if choices.llm_model == NONE:
        return SentencePropositionizer()
    return LLMPropositionizer(_llm(choices.llm_model, is_asked=choices.sample > 0), **choices.limits)


def _llm(name: str, is_asked: bool) -> LLM:
    """The LLM; one that is not going to be asked needs no key, and may be any provider's."""
    if is_asked:
        llm = make_llm(name)
        assert not isinstance(llm, str)
        assert llm is not None
        return llm
    return unasked_llm(name)


def _embed_model(choices: EstimateChoices, manifest: Manifest | None) -> str | None:
    """The name of the embedding model that `densex index` would take; None for none."""
    name = choices.embed_model
    if name is None and manifest is not None:
        name = NONE if manifest.embed_model == NONE else manifest.embed_spec or manifest.embed_model
    if name is None:
        name = E5 if cached_model(E5) is not None else NONE
    return None if name == NONE else name
