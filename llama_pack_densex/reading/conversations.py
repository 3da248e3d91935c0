"""Reads what people say and write to each other (mail, subtitles, exported chats) as turns with who and when.

Each turn begins with a label that `text.turns` recognises: "[2024-05-01 09:30] Ann Lee: ".
"""

from __future__ import annotations

import mailbox
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from email import message_from_binary_file, message_from_bytes
from email.message import EmailMessage
from email.policy import default
from email.utils import parseaddr
from functools import partial
from html import unescape
from itertools import dropwhile, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from llama_pack_densex.reading.encoding import decode_file
from llama_pack_densex.reading.files import Part, UnreadableFileError
from llama_pack_densex.reading.tables import runs
from llama_pack_densex.text.layout import find_lines
from llama_pack_densex.text.sentences import STOPS
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import on_one_line, strip_surrogates
from llama_pack_densex.text.turns import begins_with_name, find_turns

logger = plain_logger(__name__)

# Mail


def read_mail(file: Path) -> Iterator[Part]:
    """Yield a message with its subject as title, or a page that a browser saved in this format."""
    yield _message_part(file, message_from_bytes(file.read_bytes(), policy=default), set())


def read_mailbox(file: Path) -> Iterator[Part]:
    """Yield the messages of a mailbox, each without the earlier ones that it quotes at its end."""
    earlier: set[str] = set()
    parsed: Any = partial(message_from_binary_file, policy=default)
    with closing(mailbox.mbox(file, factory=parsed, create=False)) as messages:
        if not messages:
            raise UnreadableFileError(file, "has no messages: save them again, as .mbox or .eml")
        for number, message in enumerate(messages, start=1):
            yield _message_part(file, message, earlier)._replace(page=str(number))


def _message_part(file: Path, message: Any, earlier: set[str]) -> Part:
    """Return a message.

    Args:
        file: The file that it is in.
        message: The message.
        earlier: The lines of the messages before it, which are left out where they are quoted at its end;
            those of this one are added.
    """
    header = {
        key: strip_surrogates(on_one_line(str(message[key])))
        for key in ("subject", "from", "to", "date")
        if message[key]
    }
    title = header.pop("subject", "")
    sender = _sender(header.get("from", ""), getattr(message["date"], "datetime", None))
    text = _without_history(_mail_text(file, message), earlier)
    attached = [part for part in message.walk() if part.is_attachment()]
    if attached:
        logger.warning("%s: not read: its attachments (%d)", file, len(attached))
    # the header comes last, so that what stands below the title is the message
    blocks = [title and f"# {title}", sender, text.strip(), _envelope(header, attached)]
    metadata = {**header, "title": title} if title else header
    return Part("\n\n".join(filter(None, blocks)), metadata)


def _envelope(header: Mapping[str, str], attached: Sequence[EmailMessage]) -> str:
    """Return the header of a message and the names of its attachments, as code, which is kept whole."""
    lines = [f"{key.capitalize()}: {value}" for key, value in header.items()]
    names = ", ".join(filter(None, (part.get_filename() for part in attached)))
    if names:
        lines.append(f"Attachments: {strip_surrogates(on_one_line(names))}")
    return "\n".join(["```", *lines, "```"]) if lines else ""


def _sender(sender: str, sent: datetime | None) -> str:
    """Return the label of what a message says; empty if it does not say who wrote it when."""
    name, address = parseaddr(sender)
    if sent is None or not (name or "@" in address):
        return ""
    return _label(sent.strftime("%Y-%m-%d %H:%M"), name or address).strip()


_LONGEST_NAME = 40  # characters


def _label(when: str, who: str) -> str:
    who = re.sub(r"[:：<>\[\]]+", " ", who)
    return f"[{when}] {on_one_line(who)[:_LONGEST_NAME]}: "


def _mail_text(file: Path, message: EmailMessage) -> str:
    from llama_pack_densex.reading.html import html_to_text  # needs more packages

    body = message.get_body(("plain", "html"))
    content = body.get_payload(decode=True) if body else None
    if not body or not isinstance(content, bytes):
        return ""
    text = decode_file(file, content, body.get_content_charset())
    if body.get_content_subtype() == "html":
        _, text = html_to_text(text)
    text = _FORWARDED.sub(_forwarded_label, text.replace("\r\n", "\n"))
    return _with_signatures_whole(text)


# "From: Ann <ann@example.org>", "Sent: 1 May 2024 9:30", and so on, above a message in another one
_KEY = r"^[> \t]*\**(?:{names})\**[ \t]*[:：]\**[ \t]*"
_FROM = _KEY.format(names="From|Von|De|Da|差出人|送信者|发件人")
_OTHER = _KEY.format(names=r"[^\W\d][^:：*\n]{1,20}")
_FORWARDED = re.compile(
    rf"(?:^[> \t]*-{{3,}}.*\n+)?{_FROM}(?P<who>.*\S).*\n(?P<rest>(?:{_OTHER}.*\n?){{2,6}})",
    re.MULTILINE,
)
_SENT = re.compile(
    _KEY.format(names="Sent|Date|Gesendet|Datum|Envoyé|送信日時|日付|日時|发送时间") + "(.*)",
    re.MULTILINE,
)


def _forwarded_label(header: re.Match[str]) -> str:
    sent = _SENT.search(header["rest"])
    if not sent:
        return header[0]
    name, address = parseaddr(re.sub(r"\[mailto:.*", "", unescape(header["who"])))
    return f"\n{_label(on_one_line(sent[1])[:40], name or address or header['who']).strip()}\n\n"


_DELIMITER = re.compile(r"-- ?|[-_=*─━]{10,}")
_REGARDS = re.compile(
    r"(?:(?:best|kind|warm|many)? ?(?:regards|wishes|thanks)|thank you|cheers|sincerely|yours \w+"
    r"|(?:mit )?(?:freundlichen|besten|herzlichen|viele) grü(?:ß|ss)en?|(?:bien )?cordialement)[,.!]?"
    r"|sent (?:from|with|via) .{3,60}|.{3,20}から送信"
    r"|(?:以上、?)?(?:どうぞ|何卒)?(?:よろしく|宜しく)お願い(?:いた|致)?し(?:ます|申し上げます)。?",
    re.IGNORECASE,
)
_DISCLAIMER = re.compile(
    r"(?:\W*(?:confidential|disclaimer)|this (?:e-?mail|message|communication) (?:and|is|may|contain)"
    r"|the information (?:contained |transmitted )?in this|please consider the environment"
    r"|(?:本|この)(?:電子)?メール(?:は|には|の|および|及び)).{20,}",
    re.IGNORECASE,
)
_BEGINS_SIGNATURE = (_DELIMITER, _REGARDS, _DISCLAIMER)
_LONGEST_SIGNATURE = 20  # lines


def _with_signatures_whole(text: str) -> str:
    """Mark signatures and disclaimers as code, which is kept whole: none of their lines is found alone."""
    lines = text.splitlines()
    turns = find_turns(find_lines(text))
    messages = [number for number, turn in turns.items() if turn.lines]
    blocks: list[str] = []
    place = 0
    while place < len(lines):
        end = _end_of_signature(lines, place, messages)
        if end:
            signature = [line for line in lines[place:end] if not _DELIMITER.fullmatch(line)]
            blocks += ["", "```", *filter(str.strip, signature), "```", ""]
        else:
            blocks.append(lines[place])
        place = end or place + 1
    return "\n".join(blocks) + "\n" if blocks else ""


def _end_of_signature(lines: Sequence[str], place: int, messages: Container[int]) -> int:
    """Return the number of the line after a signature or disclaimer that begins on a line; 0 if none does."""
    if not any(form.fullmatch(lines[place].strip("* ")) for form in _BEGINS_SIGNATURE):
        return 0
    end = place + 1
    while end < len(lines) and end not in messages and not lines[end].startswith(">"):
        end += 1
    size = len([*filter(str.strip, lines[place + 1 : end])])
    return end if lines[place].rstrip() == "--" or size <= _LONGEST_SIGNATURE else 0


_QUOTED = re.compile(r"[> \t]*>[ \t]?")


def _without_history(text: str, earlier: set[str]) -> str:
    """Remove what a message quotes at its end if all of it is in earlier messages, to which it is added."""
    lines = text.splitlines()
    own = _without_last(lines, _is_quoted)
    quoted = [_QUOTED.sub("", line, count=1).strip() for line in lines[len(own) :]]
    if earlier and quoted and all(_is_repeated(line, earlier) for line in quoted):
        own = _without_last(own, _introduces)
        text = "\n".join(own).rstrip() + "\n"
    earlier.update([""], quoted, map(str.strip, own))
    return text


def _without_last(lines: Sequence[str], is_left_out: Callable[[str], bool]) -> Sequence[str]:
    """Return lines without those at their end that are left out."""
    return [*dropwhile(is_left_out, reversed(lines))][::-1]


def _is_quoted(line: str) -> bool:
    return not line.strip() or line.startswith(">")


def _is_repeated(line: str, earlier: Container[str]) -> bool:
    """Return whether a quoted line says nothing new: mail programs add who wrote what they quote."""
    return line in earlier or _introduces(line) or _DELIMITER.match(line) is not None


def _introduces(line: str) -> bool:
    """Return whether a line ends as those above a quotation do: "On 1 May, Ann wrote:"."""
    return line.rstrip().endswith((":", "："))


# Subtitles and other transcripts


@dataclass(frozen=True)
class Cue:
    """What is said at a time.

    Args:
        time: When, as it is shown.
        speaker: Who says it; empty if that is unknown.
        text: The words.
    """

    time: str
    speaker: str
    text: str


# the header, comments and styles of WebVTT, and the number or id of a cue
_NOT_SAID = re.compile(
    r"(?:\AWEBVTT|(?<=\n\n)(?:NOTE|STYLE|REGION))\b.*(?:\n(?!.* --> ).+)*"
    r"|(?:^\d+[ \t]*\n|(?<=\n\n)[A-Za-z\d/_-]+\n)(?=.* --> )",
    re.MULTILINE,
)
_TIMES = re.compile(r"(?:(\d+):)?(\d\d):(\d\d)\S* --> .*")
_VOICE = re.compile(r"<v[.\w]* ([^<>]*)>")
_SOUND = re.compile(r"\[[^\[\]]*\]|（[^（）]*[音声楽笑]）|[♪♫ ]+")  # "[Music]"
_LONGEST_TURN = 120  # words; a longer one is divided, so that each part has its time
_WORDS_OF_SENTENCE = 40  # at most, on average; a transcript with longer ones has no full stops


def read_subtitles(file: Path) -> Iterator[Part]:
    """Yield what subtitles say, as sentences; that of one speaker follows the time and the name."""
    text = "\n".join(decode_file(file).splitlines())
    yield Part(transcript([*_cues(_NOT_SAID.sub("", text))]))


def _cues(text: str) -> Iterator[Cue]:
    time = ""
    speaker = ""
    for line in text.splitlines():
        if times := _TIMES.fullmatch(line):
            time = f"{int(times[1] or 0):02}:{times[2]}:{times[3]}"
            speaker = ""
            continue
        if voice := _VOICE.search(line):
            speaker = voice[1].strip()
        yield Cue(time, speaker, unescape(re.sub(r"<[^<>]*>", "", line)).strip())


def transcript(cues: Sequence[Cue]) -> str:
    """Return cues as turns: those of one speaker joined, a paragraph each, without sounds and repeated lines.

    Args:
        cues: The cues in order.
    """
    cues = [next(same) for _, same in groupby(_with_speakers(cues), key=attrgetter("text"))]
    text = " ".join(cue.text for cue in cues)
    is_punctuated = len(re.findall(f"[{STOPS}]", text)) * _WORDS_OF_SENTENCE >= _size(text)

    def goes_on(turn: list[Cue], cue: Cue) -> bool:
        return cue.speaker == turn[-1].speaker and not _may_end(turn, is_punctuated)

    return "\n\n".join(map(_paragraph, runs(cues, goes_on)))


def _with_speakers(cues: Iterable[Cue]) -> list[Cue]:
    """Return the cues that have words, with the names before colons as speakers, until another follows."""
    cues = [cue for cue in cues if cue.text and not _SOUND.fullmatch(cue.text)]
    prefixes = Counter(cue.text.partition(": ")[0] for cue in cues if ": " in cue.text)
    speaker = ""
    spoken = []
    for cue in cues:
        name = _name_before_colon(cue.text, prefixes)
        speaker = cue.speaker or name or speaker
        text = cue.text
        if name == speaker:
            text = text.removeprefix(f"{name}: ")
        spoken.append(Cue(cue.time, speaker, text))
    return spoken


def _name_before_colon(text: str, prefixes: Mapping[str, int]) -> str:
    """Return the name that a text begins with; empty if what is before its colon is none, nor is repeated."""
    name, _, words = text.partition(": ")
    if not words:
        return ""
    is_repeated = prefixes[name] > 1 and len(name) < _LONGEST_NAME
    return name if is_repeated or begins_with_name(text) else ""


def _may_end(turn: Sequence[Cue], is_punctuated: bool) -> bool:
    """Return whether a paragraph is long, and ends with a sentence if there are any."""
    size = sum(_size(cue.text) for cue in turn)
    if not is_punctuated:
        return size > _WORDS_OF_SENTENCE
    return size > _LONGEST_TURN and turn[-1].text[-1] in STOPS


def _size(text: str) -> int:
    """Return about how many words a text has, in any language."""
    return max(len(text.split()), len(text) // 8)


def _paragraph(turn: Sequence[Cue]) -> str:
    label = _label(turn[0].time, turn[0].speaker) if turn[0].speaker else ""
    return label + on_one_line("\n".join(cue.text for cue in turn))


# Exports of chats, meetings and tickets as JSON

# the keys of a message's text, author and time: Slack, Discord, Telegram, Teams, tickets, transcripts
_KEYS = """
    text user ts
    text username ts
    content author timestamp
    text from date
    body from createdDateTime
    body author created_at
    body user created_at
    text speaker start
    text end start
"""
_NAMES = ("real_name", "displayName", "name", "global_name", "username", "user", "login")


def messages(values: Sequence[Any]) -> str:
    """Return the messages of a chat or ticket, or the cues of a transcript, as turns; empty if they are none.

    Args:
        values: The objects of a list in JSON.
    """
    if not all(isinstance(value, dict) for value in values):
        return ""
    for keys in map(str.split, _KEYS.strip().split("\n")):
        posts = [value for value in values if all(value.get(key) not in (None, "") for key in keys)]
        if 2 * len(posts) > len(values):
            return _spoken(posts) if keys[-1] == "start" else _chat(posts, *keys)
    return ""


def _chat(posts: list[dict[str, Any]], text_key: str, author_key: str, time_key: str) -> str:
    """Return messages as turns, an answer in a thread of Slack below its question."""
    names = {
        str(post[author_key]): _name(post["user_profile"])
        for post in posts
        if post.get("user_profile")
    }
    if any("thread_ts" in post for post in posts):
        posts.sort(key=lambda post: str(post.get("thread_ts") or post[time_key]))
    turns = []
    for post in posts:
        author = names.get(str(post[author_key])) or _name(post[author_key])
        text = _plain(post[text_key], names)
        if text:
            turns.append(_label(_time(post[time_key]), author) + text)
    return "\n\n".join(turns)


def _spoken(values: Iterable[Mapping[str, Any]]) -> str:
    """Return the cues of a transcript as turns; empty if they do not start at numbers of seconds."""
    cues: list[Cue] = []
    with suppress(ValueError, TypeError, OverflowError):
        cues = [*map(_cue, values)]
    return transcript(cues)


def _cue(value: Mapping[str, Any]) -> Cue:
    seconds = int(float(value["start"]))
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return Cue(time, str(value.get("speaker") or ""), on_one_line(str(value["text"])))


def _name(author: Any) -> str:
    """Return the name of an author, who may be an object with an object for the user in it."""
    if not isinstance(author, dict):
        return str(author)
    names = [author[key] for key in _NAMES if author.get(key)]
    inner = [value for value in author.values() if isinstance(value, dict)]
    return _name((names or inner or [""])[0])


def _time(value: Any) -> str:
    """Return a time to the minute: that of an ISO date, or of the seconds since 1970 (in UTC)."""
    text = str(value)
    if re.fullmatch(r"\d{9,10}(?:\.\d+)?", text):
        return datetime.fromtimestamp(float(text), timezone.utc).strftime("%Y-%m-%d %H:%M")
    return re.sub(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d).*", r"\1 \2", text)


def _plain(text: Any, names: Mapping[str, str]) -> str:
    """Return the text of a message, without the markup of Slack or the HTML of Teams; empty if none."""
    if isinstance(text, list):
        return "".join(_plain(part, names) for part in text)
    if isinstance(text, dict):
        return _plain(_without_tags(text.get("text") or text.get("content")), names)
    if not isinstance(text, str):
        return ""
    text = re.sub(r"<@(\w+)(?:\|[^<>]*)?>", lambda user: "@" + names.get(user[1], user[1]), text)
    text = re.sub(r"<#\w+\|([^<>]+)>", r"#\1", text)
    text = re.sub(r"<(https?:[^<>|]+)\|([^<>]+)>", r"[\2](\1)", text)
    return unescape(text).strip()


def _without_tags(text: Any) -> Any:
    if not isinstance(text, str) or "</" not in text:
        return text
    from llama_pack_densex.reading.html import html_to_text  # needs more packages

    return html_to_text(text)[1]
