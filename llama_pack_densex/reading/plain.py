"""Readers of formats that are mostly text: text with front matter, mail, subtitles, notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import yaml

from llama_pack_densex.reading.encoding import decode_file
from llama_pack_densex.reading.files import Part, UnreadableFileError
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import on_one_line, strip_surrogates
from llama_pack_densex.text.values import plain_values

logger = plain_logger(__name__)

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n((?:.*\n)*?)(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)")


def read_text(file: Path) -> Iterator[Part]:
    """Yield a file's text, with its front matter as metadata."""
    text = _PAGE_BREAK.sub(_joint_of_pages, decode_file(file))
    if file.suffix.lower() == ".mbox":
        raise UnreadableFileError(file, "is a mailbox: save its messages as .eml files")
    front = _FRONT_MATTER.match(text)
    metadata = _front_matter(file, front[1]) if front else None
    if front and metadata is not None:
        yield Part(text[front.end() :], metadata)
    else:
        yield Part(text)


# the last line of a page of an RFC or a draft, and the first one of the next page
_PAGE_BREAK = re.compile(
    r"(?<=\S)\s*\n[^\n]*\[Page \d{1,4}\][ \t\r]*(?:\s*\n(?:RFC \d|Internet-Draft)[^\n]*\d{4}[ \t\r]*)?"
    r"\s*?(?=\n[^\S\n]*\S|\Z)"
)


def _joint_of_pages(page_break: re.Match[str]) -> str:
    """Return what stands for a page break: a blank line, unless a sentence goes on behind it."""
    last = page_break.string[max(page_break.start() - 1, 0)]
    return "\n" if last in ".:;?!)" else ""


def _front_matter(file: Path, front: str) -> dict[str, Any] | None:
    """Return front matter as plain JSON; None if it is not YAML that can be kept."""
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(front)):
            raise ValueError("it has aliases, which may expand to gigabytes")
        metadata = yaml.safe_load(front)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        kind = type(error).__name__
        logger.warning(
            "%s: its front matter is not valid YAML (%s) and stays in the text", file, kind
        )
        return None
    if not front.strip():
        return {}
    if not isinstance(metadata, dict):
        return None  # text between two rules
    try:
        return plain_values(metadata)
    except ValueError as error:
        logger.warning("%s: its front matter stays in the text: %s", file, error)
        return None


def read_mail(file: Path) -> Iterator[Part]:
    """Yield a message with its subject as title, or a page that a browser saved in this format."""
    message = message_from_bytes(file.read_bytes(), policy=default)
    header = {
        key: strip_surrogates(on_one_line(str(message[key])))
        for key in ("subject", "from", "to", "date")
        if message[key]
    }
    title = header.pop("subject", "")
    text = _mail_text(file, message)
    attachments = sum(part.is_attachment() for part in message.walk())
    if attachments:
        logger.warning("%s: not read: its attachments (%d)", file, attachments)
    lines = "\n".join(f"{key.capitalize()}: {value}" for key, value in header.items())
    blocks = [title and f"# {title}", lines, text]
    metadata = {**header, "title": title} if title else header
    yield Part("\n\n".join(filter(None, blocks)), metadata)


def _mail_text(file: Path, message: EmailMessage) -> str:
    from llama_pack_densex.reading.html import html_to_text  # needs more packages

    body = message.get_body(("plain", "html"))
    content = body.get_payload(decode=True) if body else None
    if not body or not isinstance(content, bytes):
        return ""
    text = decode_file(file, content, body.get_content_charset())
    if body.get_content_subtype() == "html":
        _, text = html_to_text(text)
    return text


# The header, comments and styles of WebVTT; the times of a cue, with its number or id.
_NOT_SAID = re.compile(
    r"(?:\AWEBVTT|(?<=\n\n)(?:NOTE|STYLE|REGION))\b.*(?:\n(?!.* --> ).+)*"
    r"|(?:^\d+[ \t]*\n|(?<=\n\n)[A-Za-z\d/_-]+\n)?^.* --> .*$|<[^<>]*>",
    re.MULTILINE,
)


def read_subtitles(file: Path) -> Iterator[Part]:
    """Yield the lines of subtitles without times; those of one speaker are joined behind the name."""
    text = "\n".join(decode_file(file).splitlines())
    text = re.sub(r"<v[.\w]* ([^<>]*)>", r"\1: ", text)
    turns: list[list[str]] = []
    last_speaker = ""
    for line in filter(None, _NOT_SAID.sub("", text).splitlines()):
        speaker, colon, words = line.partition(": ")
        if colon and speaker == last_speaker:
            turns[-1].append(words)
        else:
            turns.append([line])
            last_speaker = speaker if colon else last_speaker
    yield Part("\n".join(on_one_line("\n".join(lines)) for lines in turns))


def read_notebook(file: Path) -> Iterator[Part]:
    """Yield the cells of a Jupyter notebook, without their outputs."""
    yield Part("\n\n".join(map(_cell_text, json.loads(decode_file(file))["cells"])))


def _cell_text(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    return f"```\n{text}\n```" if cell["cell_type"] == "code" else text
