"""Evaluation questions that an LLM writes about passages of the user's own documents.

A question is accepted only if it passes checks: the evidence has to be in the passage and the answer in the
evidence, verbatim; the question has to be in the passage's language, worded differently from the passage, and
unlike the other questions.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import Any

from llama_index.core.llms import LLM, ChatMessage
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.core.schema import Document

from llama_pack_densex.evaluation.datasets import read_folder
from llama_pack_densex.evaluation.evaluation_set import Question
from llama_pack_densex.evaluation.evidence import contains_answer
from llama_pack_densex.evaluation.models import AT_ONCE, AskingFailed, KeptLLM, at_once
from llama_pack_densex.index.manifest import write_whole
from llama_pack_densex.ingestion.progress import TaskLine, display_for
from llama_pack_densex.llm.cache import passage_digest
from llama_pack_densex.llm.limits import Limits
from llama_pack_densex.llm.names import named_llm
from llama_pack_densex.llm.usage import RequestFigures, count_tokens, read_prices
from llama_pack_densex.node_parsers.parsers import PropositionNodeParser
from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.prompts import format_request
from llama_pack_densex.text.language import find_wrong_language
from llama_pack_densex.text.links import searchable_text
from llama_pack_densex.text.terminal import plain_logger
from llama_pack_densex.text.tokens import content_words, has_letters, tokenize

logger = plain_logger(__name__)

KINDS = ("fact", "situation", "list", "keyword")
"""A single fact; the asker's own situation; several things; keywords as typed into a search box."""

_MOST_REQUESTS = 2  # requests for each question that is wanted
_LEAST_TOKENS = 20  # in a passage: a heading or a line of a menu answers nothing
_COPIED = 0.75
"""A question is copied if this share of its content words is in its passage. That holds for 17 % of 121
questions that employees asked about a handbook, for 55 % of SQuAD's and 83 % of JSQuAD's; for none that a
strong model wrote to these prompts."""
_ALIKE = 0.8  # two questions are alike if they share this part of their tokens (Jaccard similarity)
_DECODER = json.JSONDecoder(strict=False)
_ADDRESS = r"\]\([^()\s]*\)"  # the end of a Markdown link
_PLAIN = str.maketrans("’‘“”–—―〜～", "''\"\"---~~") | {
    wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)
}
_LINK_OR_MARK = rf"(?:[\s*_`\[]|{_ADDRESS})*"  # what models leave out when they copy Markdown


@dataclass(frozen=True)
class QuestionSet:
    """Questions that an LLM wrote.

    Attributes:
        questions: The questions, each with its document, answers (strings in the evidence), evidence (a
            stretch of the document's text) and kind ("fact", "list", "situation" or "keyword").
        left_out: The number of questions that were left out, by reason.
        requests: The requests, with their tokens and cost.

    Example:
        >>> from llama_index.core import Document
        >>> from llama_index.llms.openai import OpenAI
        >>> from llama_pack_densex import make_questions
        >>> text = "Miso is a paste of soybeans, salt and koji. It keeps for a year in a cool cellar."
        >>> question_set = make_questions([Document(text=text)], OpenAI(model="gpt-4o-mini"), number=1)
        >>> question_set.questions[0].text, question_set.left_out
        ('For how many months can soybean paste be stored?', Counter())
    """

    questions: list[Question]
    left_out: Counter[str] = field(default_factory=Counter)
    requests: RequestFigures = field(default_factory=RequestFigures)

    def write(self, file: str | Path) -> None:
        """Write the questions as JSONL, which `compare` and `evaluate` read.

        A file with other questions, which may have been edited, is kept beside it, as `questions.jsonl.1`.

        Raises:
            OSError: The file cannot be written.

        Example:
            >>> from pathlib import Path
            >>> question_set.write("questions.jsonl")
            >>> Path("questions.jsonl").read_text().count("\\n")
            1
        """
        lines = []
        for question in self.questions:
            row = {
                "question": question.text,
                "answers": question.answers,
                "document": question.document_id,
                "evidence": question.evidence,
                "kind": question.kind,
            }
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        with _keeping_edited(Path(file)):
            write_whole(Path(file), "".join(lines))


@contextmanager
def _keeping_edited(file: Path) -> Iterator[None]:
    """Keep a copy of a file if it is given other content."""
    if not file.exists():
        yield
        return
    numbered = (file.with_name(f"{file.name}.{number}") for number in count(1))
    copy = next(name for name in numbered if not name.exists())
    shutil.copy2(file, copy)
    try:
        yield
    finally:
        is_same = copy.read_bytes() == file.read_bytes()
        if is_same:
            copy.unlink()
    if not is_same:
        logger.warning("%s held other questions: they are kept in %s", file, copy)


def make_questions(  # noqa: PLR0913 (public)
    documents: str | Path | Sequence[Document],
    llm: LLM | str,
    number: int = 50,
    *,
    cache: str | Path | None = None,
    max_cost: float | None = None,
    max_concurrency: int | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    prices: Any = None,
    show_progress: bool = False,
) -> QuestionSet:
    """Have an LLM write questions about passages of documents, for `compare` and `evaluate`.

    The passages are spread over the documents; the same documents always give the same passages. Each request
    is about another passage, and asks for the kinds of question in turn; a passage is used again, for another
    kind, only if there are too few passages. Each question that is left out costs a further request, up to
    twice as many requests as questions are wanted.

    Args:
        documents: A folder, a file, or documents.
        llm: The LLM, or its name, such as "ollama:qwen3:8b".
        number: How many questions to write. Small folders give fewer.
        cache: The SQLite file that stores replies as they arrive, so that a stopped run can be continued.
        max_cost: US dollars to stop at; None means no limit.
        max_concurrency: How many requests are sent at the same time. None means 8.
        requests_per_minute: How many requests the provider allows. None means no limit.
        tokens_per_minute: How many tokens the provider allows, sent and received together. None means no
            limit.
        prices: Prices that extend or replace the list prices, as for `LLMPropositionizer`.
        show_progress: Whether to show the progress, in the notebook or on stderr.

    Raises:
        DatasetError: There are no documents in the folder.
        LLMError: The LLM stops: the budget is used up, or the provider refuses the key or the settings, or
            does not answer. With a cache, replies that were paid for are not requested again.
        ValueError: `number` is less than 1, or there is a `max_cost` for a model whose price is not known.
        OSError: A file cannot be read or written.

    Example:
        >>> from llama_index.core import Document
        >>> from llama_index.llms.openai import OpenAI
        >>> from llama_pack_densex import make_questions
        >>> text = "Miso is a paste of soybeans, salt and koji. It keeps for a year in a cool cellar."
        >>> llm = OpenAI(model="gpt-4o-mini")
        >>> questions = make_questions([Document(text=text)], llm, number=1, cache="replies.db").questions
        >>> questions[0].text, questions[0].evidence
        ('For how many months can soybean paste be stored?', 'It keeps for a year in a cool cellar.')
    """
    threads = max_concurrency or AT_ONCE
    limits = Limits(threads, requests_per_minute, tokens_per_minute)
    writer = KeptLLM(_as_llm(llm), cache, max_cost, limits=limits, prices=read_prices(prices))
    tasks = _tasks(documents, number)
    question_set = QuestionSet([])
    display = display_for(show_progress, transient=True)
    show = TaskLine(display)
    with display.around:
        while batch := list(islice(tasks, number - len(question_set.questions))):
            step = partial(show, "Writing questions")
            results = at_once(partial(_write, writer), batch, step, threads)
            if writer.stopped:
                raise writer.stopped
            for result in results:
                _add(question_set, result)
    return replace(question_set, requests=writer.figures)


def estimate_questions(
    documents: str | Path | Sequence[Document],
    llm: LLM | str,
    number: int = 50,
    *,
    cache: str | Path | None = None,
    prices: Any = None,
) -> RequestFigures:
    """Estimate the requests and the cost of `make_questions`.

    The arguments are those of `make_questions`. The estimate assumes replies of the usual length, and no
    question that is left out. No request is sent, and no key is needed.

    Example:
        >>> from llama_pack_densex import load_sample
        >>> from llama_pack_densex.evaluation import estimate_questions
        >>> figures = estimate_questions(load_sample("en").documents, "gpt-4o-mini", number=50)
        >>> figures.usage.requests, figures.cost < 0.05
        (50, True)
    """
    if cache is not None and not Path(cache).exists():
        cache = None
    writer = KeptLLM(
        _as_llm(llm, is_called=False), cache, stand_in=_EXPECTED_REPLY, prices=read_prices(prices)
    )
    for task in islice(_tasks(documents, number), number):
        writer.ask(task.messages(writer))
    return writer.figures


@dataclass(frozen=True)
class _Task:
    """A request for a question of a given kind about a passage."""

    document_id: str
    passage: Passage
    kind: str

    def messages(self, llm: LLM) -> list[ChatMessage]:
        """Return the prompt for the LLM."""
        system = _SYSTEM
        label = "Kind of question"
        if self.passage.language == "ja":
            system = _SYSTEM_JA
            label = "質問の種類"
        prompt = ChatPromptTemplate.from_messages([("system", system), ("user", _REQUEST)])
        return format_request(prompt, llm, self.passage, f"{label}: {self.kind}\n\n")


def _tasks(documents: str | Path | Sequence[Document], number: int) -> Iterator[_Task]:
    """Return the requests to make: passages spread over the documents, with the kinds in turn."""
    if number < 1:
        raise ValueError(f"number is {number}: at least 1 is needed")
    if isinstance(documents, (str, Path)):
        documents = read_folder(Path(documents))
    passages = _spread_passages(documents)
    tasks = []
    for turn in range(len(KINDS)):
        for place, (_, document_id, passage) in enumerate(passages):
            tasks.append(_Task(document_id, passage, KINDS[(place + turn) % len(KINDS)]))
    return iter(tasks[: _MOST_REQUESTS * number])


def _spread_passages(documents: Sequence[Document]) -> list[tuple[str, str, Passage]]:
    """Return the passages that may answer something: the first of each document, the second of each, ...

    Each comes with the digest of its text and its document's id. Passages of a document, and documents, are
    ordered by these digests, which all differ. A text that occurs in several places is left out, because the
    question would have no single source.
    """
    passages_of = dict(_parsed(documents))
    places = Counter(passage.text for passages in passages_of.values() for passage in passages)
    by_document = []
    for document_id, passages in passages_of.items():
        entries = []
        for passage in passages:
            if places[passage.text] == 1 and _is_prose(passage.text):
                entries.append((passage_digest(passage.text), document_id, passage))
        by_document.append(sorted(entries))
    spread = []
    for entries_of_round in zip_longest(*by_document):
        spread += sorted(filter(None, entries_of_round))
    return spread


def _parsed(documents: Sequence[Document]) -> Iterator[tuple[str, list[Passage]]]:
    """Yield the id of each document that can be split, and its passages."""
    parser = PropositionNodeParser()
    for document in documents:
        try:
            yield document.node_id, parser.passages_of(document)
        except ValueError as error:
            logger.warning("skipped: %s", error)


def _is_prose(text: str) -> bool:
    return has_letters(text) and count_tokens(text) >= _LEAST_TOKENS


def _write(llm: KeptLLM, task: _Task) -> Question:
    """Have a question written, and check it.

    Raises:
        AskingFailed: There is no question, or it fails a check.
    """
    reply = _read_object(llm.ask(task.messages(llm), task.passage.text))
    text = task.passage.text
    language = task.passage.language
    question = " ".join(_text(reply, "question").split())
    if not question:
        raise AskingFailed("the LLM finds nothing to ask")
    evidence = _find(_text(reply, "evidence"), text)
    if not evidence:
        raise AskingFailed("the evidence is not in the passage")
    answer = _find(_text(reply, "answer"), evidence)
    if not answer:
        raise AskingFailed("the answer is not in the evidence")
    if contains_answer(question, (answer,), language):
        raise AskingFailed("the answer is in the question")
    if find_wrong_language(text, [question]):
        raise AskingFailed("the question is in another language than the passage")
    kind = _text(reply, "kind")
    if kind not in KINDS:
        kind = task.kind
    if _is_copied(question, text, kind):
        raise AskingFailed("the question repeats the words of the text")
    answers = tuple(dict.fromkeys((searchable_text(answer).strip("*_` "), answer)))
    whole_evidence = _with_whole_rows(evidence, text)
    return Question("", question, answers, task.document_id, evidence=whole_evidence, kind=kind)


def _add(question_set: QuestionSet, result: Question | AskingFailed) -> None:
    """Add a question, unless there is one like it; otherwise count why it is left out."""
    if isinstance(result, AskingFailed):
        question_set.left_out[str(result)] += 1
    elif any(_are_alike(result.text, question.text) for question in question_set.questions):
        question_set.left_out["there is a question like it"] += 1
    else:
        question_set.questions.append(replace(result, id=str(len(question_set.questions) + 1)))


def _are_alike(first: str, second: str) -> bool:
    tokens = set(tokenize(first))
    other_tokens = set(tokenize(second))
    return len(tokens & other_tokens) >= _ALIKE * len(tokens | other_tokens)


def _read_object(reply: str) -> dict[str, Any]:
    """Return the JSON object with a "question" in a reply, ignoring the text around it.

    Raises:
        AskingFailed: There is none.
    """
    for brace in re.finditer("{", reply):
        try:
            value, _ = _DECODER.raw_decode(reply, brace.start())
        except (ValueError, RecursionError):
            continue
        if "question" in value:
            return dict(value)
    raise AskingFailed("the reply is not the JSON that was asked for")


def _text(reply: Mapping[str, Any], name: str) -> str:
    """Return a field of a reply as text, also if it is a number or a list of one; "" otherwise."""
    value = reply.get(name)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, (str, int, float)):
        return ""
    return str(value).strip()


def _find(quotation: str, text: str) -> str:
    """Return the stretch of a text that a model copied, as it is written there; "" if it is not there.

    White space, Markdown's marks and link addresses, and variants of quotation marks and dashes are ignored.
    """
    if quotation in text:
        return quotation
    letters = re.sub(_LINK_OR_MARK, "", quotation.translate(_PLAIN))
    if len(letters) > len(text):
        return ""
    copied = _LINK_OR_MARK.join(map(re.escape, letters))
    match = re.search(rf"[*_`\[]*{copied}[*_`]*(?:{_ADDRESS}[*_`]*)?", text.translate(_PLAIN))
    if not match:
        return ""
    return text[match.start() : match.end()]


def _with_whole_rows(evidence: str, text: str) -> str:
    """Extend evidence to whole rows of a table, since a cell's position shows which column it belongs to."""
    start = text.index(evidence)
    end = start + len(evidence)
    row_start = text.rfind("\n", 0, start) + 1
    if text.startswith("|", row_start):
        start = row_start
        rest_of_row, _, _ = text[end:].partition("\n")
        end += len(rest_of_row)
    return text[start:end].strip()


def _is_copied(question: str, text: str, kind: str) -> bool:
    """Return whether a question repeats its passage's words; keywords count only if they occur verbatim."""
    if kind == "keyword":
        return bool(_find(question, text))
    words = content_words(question)
    return len(words & set(tokenize(text))) >= _COPIED * len(words)


def _as_llm(llm: LLM | str, *, is_called: bool = True) -> LLM:
    if isinstance(llm, str):
        return named_llm(llm, is_called=is_called)
    return llm


_SYSTEM = """\
Write one question that the passage answers, to test a search over many documents. Write it in the passage's \
language, as somebody asks who needs the answer and has never seen the text.
1. Kinds: fact (one thing is asked), list (several things are asked), situation (the asker's own case, in \
one or two sentences, that a rule of the passage decides), keyword (2 to 5 words as typed into a search \
box). Where the passage has nothing for the kind that is wanted, take another.
2. Other words than the text's: everyday words, synonyms, the asker's point of view. Keep only names that \
say what it is about.
3. Clear on its own: name the subject, never "the passage", "this document" or "the above". Ask what only \
this passage answers.
4. evidence: the sentence, list items or whole table row that answers it, copied from the passage character \
for character. Read alone, under title, section and columns' names, it answers all that is asked.
5. answer: the few words of the evidence that answer it, copied too; of a list, from its first item to its \
last; of a table a cell, so never ask for a column's name.
6. Ask what matters to readers: no dates of updates, links, headings or navigation. If there is nothing \
else, leave the question empty.
Reply with JSON and nothing else.

Example (kind situation, title Karsted Lighthouse): It was begun in 1874 by Ida Brandvold. We charge:
- adults 5 euros
- children under 12 nothing
{"kind": "situation", "question": "I want to take my son, who is nine, up Karsted Lighthouse. What will his \
ticket cost?", "evidence": "- children under 12 nothing", "answer": "nothing"}"""

_SYSTEM_JA = """\
文章が答えになる質問を一つ、日本語で書く。多くの文書からの検索を試すための質問である。\
答えを必要とし、この文章を見たことがない人が尋ねるように書く。
1. 種類: fact（一つのことを尋ねる）、list（複数のことを尋ねる）、\
situation（文章の規則で決まる、尋ねる人自身の状況を1〜2文で）、keyword（検索窓に入れる2〜5語）。求められた種類に合う内容がなければ、別の種類にする。
2. 文章と違う言葉を使う: 日常の言葉、言い換え、尋ねる人の立場。何についてかを示す名前だけは残す。
3. 単独で通じるように主題を示し、「この文章」「本書」「上記」とは書かない。この文章だけが答えることを尋ねる。
4. evidence: 答えになる文、箇条書きの項目、表の行全体を、文章から一字一句そのまま写す。\
題名、節、列名の下でそれだけを読めば、尋ねたことすべてに答えている。
5. answer: evidenceの中の、答えになる短い語句をそのまま写す。listなら最初の項目から最後の項目まで。表ならセル\
（列名を尋ねてはいけない）。
6. 読む人に大切なことを尋ねる。更新日、リンク、見出し、案内は尋ねない。それしかなければquestionを空にする。
JSONだけを返す。

例（種類 situation、題名 霧浜灯台）: 1874年着工。料金:
- 大人500円
- 12歳未満無料
{"kind": "situation", \
"question": "9歳の息子を霧浜灯台に連れて行きたいのですが、子どもの入場料はいくらですか？", \
"evidence": "- 12歳未満無料", "answer": "無料"}"""

_REQUEST = "{note}Title: {title}. Section: {section}. Content: {content}"


_EXPECTED_REPLY = (
    '{"kind": "fact", "question": "'
    + "word " * 15
    + '", "evidence": "'
    + "word " * 40
    + '", "answer": "5"}'
)
"""A reply of the usual length, for estimates."""
