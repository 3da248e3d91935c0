"""LLMPropositionizer with LlamaIndex's OpenAI client, against a server on the loopback interface."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.prompts import PromptTemplate, RichPromptTemplate
from llama_index.core.utils import get_tokenizer
from llama_index.llms.openai import OpenAI

from llama_pack_densex import DenseXRetrievalPack, PropositionNodeParser
from llama_pack_densex.ingestion.estimate import estimate
from llama_pack_densex.propositionizers.base import Passage, PropositionizerError
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.text.segments import sentence_spans
from tests.conftest import DATA
from tests.openai_server import (
    MALFORMED,
    STYLES,
    OpenAIServer,
    Reply,
    Responder,
    asked_content,
    held,
    in_turn,
)

MISO = {
    "Miso is a Japanese seasoning, which is salty.": [
        "Miso is a Japanese seasoning.",
        "Miso is salty.",
    ],
    "It's made of soybeans that the cook steams.": [
        "Miso is made of soybeans.",
        "The cook's soybeans are steamed.",
    ],
    "In 701, a law named it.": ['A law of 701 named "mishō", the forerunner of miso.'],
}
MISO_JA = {
    "味噌は日本の調味料で、塩辛い。": ["味噌は日本の調味料である。", "味噌は塩辛い。"],
    "蒸した大豆に麹（こうじ）を混ぜて作る。": ["味噌は蒸した大豆に麹を混ぜて作る。"],
    "701年の大宝令にその名が見える。": ["味噌の名は701年の大宝令に「未醤」として見える。"],
}
PASSAGE = Passage(" ".join(MISO), title="Miso", section="History")
PASSAGE_JA = Passage("".join(MISO_JA), title="味噌", section="歴史")
ALL = [text for texts in MISO.values() for text in texts]
ALL_JA = [text for texts in MISO_JA.values() for text in texts]
BOTH = pytest.mark.parametrize(
    ("passage", "held_here", "propositions"),
    [(PASSAGE, MISO, ALL), (PASSAGE_JA, MISO_JA, ALL_JA)],
    ids=["en", "ja"],
)


def split_sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


def propositionizer(server: OpenAIServer, **arguments: Any) -> LLMPropositionizer:
    llm = OpenAI(
        model="gpt-4o-mini", api_base=server.url, api_key="sk-test-0123456789", max_retries=0
    )
    return LLMPropositionizer(llm, **{"retry_wait": 0, "max_retries": 0, **arguments})


@BOTH
def test_a_passage_costs_one_request_with_the_passage_last(
    passage: Passage, held_here: dict[str, list[str]], propositions: list[str]
) -> None:
    with OpenAIServer(held(held_here)) as server:
        made = propositionizer(server).propositionize([passage])
    assert [(list(one.texts), one.status, one.reason) for one in made] == [(propositions, "ok", "")]
    (request,) = server.requests
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert (
        request.last_message
        == f"Title: {passage.title}. Section: {passage.section}. Content: {passage.text}"
    )


def test_the_fixed_part_is_the_same_for_all_requests_of_a_language() -> None:
    passages = [
        Passage(text, title) for text in (PASSAGE.text, PASSAGE_JA.text) for title in ("a", "b", "")
    ]
    with OpenAIServer(held({**MISO, **MISO_JA})) as server:
        propositionizer(server).propositionize(passages)
    fixed = [json.dumps(request.messages[:-1]) for request in server.requests]
    assert (len(fixed), len(set(fixed))) == (6, 2)


def test_an_empty_title_and_section_keep_the_form() -> None:
    with OpenAIServer(lambda body: '["a b"]') as server:
        propositionizer(server).propositionize([Passage("a b")])
    assert server.requests[0].last_message == "Title: . Section: . Content: a b"


def test_japanese_passages_get_a_japanese_prompt_and_all_others_an_english_one() -> None:
    passages = [PASSAGE_JA, PASSAGE, Passage("서울은 대한민국의 수도이다.")]
    with OpenAIServer(lambda body: "[]") as server:
        propositionizer(server, max_attempts=1, max_concurrency=1).propositionize(passages)
    systems = [request.messages[0]["content"] for request in server.requests]
    assert ["命題" in system for system in systems] == [True, False, False]
    assert "in the language of the passage" in systems[2]


def test_braces_and_instructions_in_a_passage_survive() -> None:
    text = 'Use {"a": {title}} or {{content}}, {} and {note}. Content: {% raw %} $x_{i}$ \\n'
    with OpenAIServer(lambda body: '["a b"]') as server:
        propositionizer(server).propositionize([Passage(text, title="{content}", section="{x}")])
    assert server.requests[0].last_message == f"Title: {{content}}. Section: {{x}}. Content: {text}"


@pytest.mark.parametrize(
    "prompt",
    [
        PromptTemplate("Split {content} of {title}"),
        RichPromptTemplate("Split {{ content }} of {{ title }}"),
    ],
    ids=["PromptTemplate", "RichPromptTemplate"],
)
def test_prompts_are_read_and_replaced_the_llama_index_way(prompt: Any) -> None:
    with OpenAIServer(in_turn("[]", '["a b"]')) as server:
        asking = propositionizer(server)
        before = asking.fingerprint
        assert set(asking.get_prompts()) == {"proposition_prompt", "japanese_proposition_prompt"}
        asking.update_prompts({"proposition_prompt": prompt})
        made = asking.propositionize([Passage("Miso {is} salty.", "Miso")])
    assert asking.fingerprint != before
    assert server.requests[0].last_message == "Split Miso {is} salty. of Miso"
    assert server.requests[1].last_message.endswith("\n\nSplit Miso {is} salty. of Miso")
    assert made[0].status == "repaired"


def test_a_prompt_that_leaves_out_the_passage_is_an_error() -> None:
    with pytest.raises(ValueError, match="content"):
        LLMPropositionizer(MockLLM(), proposition_prompt=PromptTemplate("Split it."))
    with pytest.raises(ValueError, match="no prompt 'nonsense'"):
        LLMPropositionizer(MockLLM()).update_prompts({"nonsense": PromptTemplate("{content}")})


def test_a_completion_model_gets_one_prompt_in_the_same_order() -> None:
    with OpenAIServer(held(MISO)) as server:
        llm = OpenAI(
            model="gpt-3.5-turbo-instruct", api_base=server.url, api_key="sk-test", max_retries=0
        )
        made = LLMPropositionizer(llm).propositionize([PASSAGE])
    assert list(made[0].texts) == ALL
    assert server.requests[0].body["prompt"].startswith("Break the passage into propositions")
    assert server.requests[0].last_message.endswith(
        f"Title: Miso. Section: History. Content: {PASSAGE.text}"
    )


def test_a_model_that_echoes_the_prompt_has_answered_nothing() -> None:
    made = LLMPropositionizer(MockLLM()).propositionize([PASSAGE])
    assert (made[0].status, list(made[0].texts)) == ("fallback", list(MISO))


@BOTH
def test_the_example_in_a_prompt_is_no_proposition(
    passage: Passage, held_here: dict[str, list[str]], propositions: list[str]
) -> None:
    def example(body: dict[str, Any]) -> str:
        return str(body["messages"][0]["content"].splitlines()[-1])

    with OpenAIServer(in_turn(example, held(held_here))) as server:
        made = propositionizer(server).propositionize([passage])[0]
    assert (list(made.texts), len(server.requests)) == (propositions, 2)
    with OpenAIServer(lambda body: f"{example(body)}\n{json.dumps(propositions)}") as server:
        assert list(propositionizer(server).propositionize([passage])[0].texts) == propositions
        about_it = json.loads(example(server.requests[0].body))
        # a document may say just that
        lighthouses = Passage("".join(about_it), title=passage.title)
        assert propositionizer(server).propositionize([lighthouses])[0].texts[
            : len(about_it)
        ] == tuple(about_it)


def test_a_lone_surrogate_does_not_keep_a_passage_from_being_sent() -> None:
    with OpenAIServer(lambda body: '["a b"]') as server:
        (made,) = propositionizer(server).propositionize([Passage("A \ud800 b.")])
    assert (made.status, server.requests[0].content) == ("ok", "A \ufffd b.")


@pytest.mark.parametrize(
    ("text", "texts"), [(" \n", ()), ("12", ("12",)), ("1, 2.\n\n😀 ***", ("1, 2.",))]
)
def test_a_passage_without_letters_costs_nothing(text: str, texts: tuple[str, ...]) -> None:
    with OpenAIServer() as server:
        asking = propositionizer(server)
        (made,) = asking.propositionize([Passage(text)])
        assert (made.texts, made.status, server.requests) == (texts, "ok", [])
        document = Document(id_="numbers", text=text)
        found = estimate([document], PropositionNodeParser(propositionizer=asking))
        assert (found.requests, found.cost) == (0, 0.0)
        made_nodes = PropositionNodeParser(propositionizer=asking).get_nodes_from_documents(
            [document]
        )
    assert tuple(node.get_content() for node in made_nodes[1:]) == texts


def test_a_page_number_is_no_sign_that_a_model_is_of_use() -> None:
    with (
        OpenAIServer(lambda body: "no list") as server,
        pytest.raises(PropositionizerError, match="None of the pass"),
    ):
        DenseXRetrievalPack(
            [Document(text="12"), Document(text="Miso is salty.")],
            propositionizer=propositionizer(server), embed_model="none", query_llm="none",
        )  # fmt: skip


@pytest.mark.parametrize("style", sorted(set(STYLES) - set(MALFORMED)))
@BOTH
def test_every_style_yields_exactly_what_the_model_held(
    passage: Passage, held_here: dict[str, list[str]], propositions: list[str], style: str
) -> None:
    with OpenAIServer(held(held_here, style=STYLES[style])) as server:
        (made,) = propositionizer(server).propositionize([passage])
    assert (list(made.texts), len(server.requests)) == (propositions, 1)
    assert made.status == "ok"


@pytest.mark.parametrize("style", MALFORMED)
def test_a_malformed_reply_is_asked_for_again(style: str) -> None:
    malformed = held({**MISO, "It's made of": ['"Miso" isn\'t sweet.']}, style=STYLES[style])
    with OpenAIServer(in_turn(malformed, held(MISO))) as server:
        (made,) = propositionizer(server).propositionize([PASSAGE])
    assert (list(made.texts), made.status, len(server.requests)) == (ALL, "repaired", 2)


@pytest.mark.parametrize("style", sorted({*MALFORMED} - {"comments"}))
@BOTH
def test_a_model_that_writes_lists_in_its_own_way_each_time_loses_nothing(
    passage: Passage, held_here: dict[str, list[str]], propositions: list[str], style: str
) -> None:
    with OpenAIServer(held(held_here, style=STYLES[style])) as server:
        (made,) = propositionizer(server).propositionize([passage])
    assert list(made.texts) == propositions
    assert made.status in ("ok", "repaired")


@BOTH
@pytest.mark.parametrize("finish", ["length", "stop"])
def test_a_cut_reply_splits_the_passage_and_loses_nothing(
    passage: Passage, held_here: dict[str, list[str]], propositions: list[str], finish: str
) -> None:
    def respond(body: dict[str, Any]) -> Reply:
        reply = held(held_here, max_output_tokens=40)(body)
        assert isinstance(reply, Reply)
        return Reply(reply.content, finish if reply.finish_reason == "length" else "stop")

    with OpenAIServer(respond) as server:
        (made,) = propositionizer(server).propositionize([passage])
    assert (list(made.texts), made.status) == (propositions, "repaired")
    assert "cut off" in made.reason
    assert all(
        split_sentences(request.content) == _sentences_in(request.content)
        for request in server.requests
    )


def _sentences_in(content: str) -> list[str]:
    return [sentence for sentence in {**MISO, **MISO_JA} if sentence in content]


def test_the_second_half_is_told_what_stands_before_it_ahead_of_the_passage() -> None:
    with OpenAIServer(held(MISO, max_output_tokens=45)) as server:
        propositionizer(server).propositionize([PASSAGE])
    later = next(
        r.last_message for r in server.requests if r.content.startswith(("It's made", "In 701"))
    )
    assert (
        later.index("Text before the passage")
        < later.index("Miso is a Japanese")
        < later.index("Title: Miso")
    )


@pytest.mark.parametrize(
    "file", ["en/apollo-13.md", "en/mariana-trench.txt", "ja/miso.md", "ja/lake-biwa.txt"]
)
@pytest.mark.parametrize("times", [1, 8])
@pytest.mark.slow_cases("8-*", but=["*miso.md"])
def test_a_model_capped_at_750_tokens_loses_nothing_of_an_article(file: str, times: int) -> None:
    article = (DATA / file).read_text("utf-8")
    text = "\n\n".join(
        article.replace("19", f"{n}9").replace("、", f"、{n}") for n in range(1, times + 1)
    )
    right = {
        s: [f"{s} ({n}a)", f"{s} ({n}b)"]
        for n, s in enumerate(dict.fromkeys(split_sentences(text)))
    }
    with OpenAIServer(held(right, max_output_tokens=750)) as server:
        (made,) = propositionizer(server).propositionize([Passage(text, "An article")])
    assert times == 1 or len(get_tokenizer()(text)) > 7_500
    assert list(made.texts) == [
        proposition for held_here in right.values() for proposition in held_here
    ]
    assert made.status == "repaired"
    assert server.peak <= 8


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("[]", "empty"),
        ("", "empty"),
        (Reply(None), "empty"),
        ("I'm sorry, but I can't help with that.", "refused"),
        (Reply(None, refusal="I can't help with that."), "refused"),
        ("Miso is salty and made of soybeans.", "not a list"),
        ('[{"s": "Miso", "p": "is", "o": "salty"}]', "not a list"),
        (json.dumps(ALL_JA), "Japanese"),
    ],
)
def test_a_useless_reply_is_asked_for_again_with_the_reason(
    first: Reply | str, reason: str
) -> None:
    with OpenAIServer(in_turn(first, held(MISO))) as server:
        (made,) = propositionizer(server).propositionize([PASSAGE])
    assert (list(made.texts), made.status) == (ALL, "repaired")
    assert reason in made.reason
    again = server.requests[1].last_message
    assert again.startswith("Your last reply could not be used")
    assert again.endswith(server.requests[0].last_message)
    assert server.requests[0].messages[0] == server.requests[1].messages[0]


def test_english_for_a_japanese_passage_is_asked_for_again_in_japanese() -> None:
    with OpenAIServer(in_turn(json.dumps(ALL), held(MISO_JA))) as server:
        (made,) = propositionizer(server).propositionize([PASSAGE_JA])
    assert (list(made.texts), made.status, len(server.requests)) == (ALL_JA, "repaired", 2)
    assert "日本語で" in server.requests[1].last_message


@pytest.mark.parametrize(
    "reply", ["[]", "I can't help with that.", json.dumps(ALL), "nonsense", '["味噌']
)
def test_sentences_stand_in_for_what_cannot_be_had(
    reply: str, caplog: pytest.LogCaptureFixture
) -> None:
    with OpenAIServer(lambda body: reply) as server:
        (made,) = propositionizer(server).propositionize([PASSAGE_JA])
    assert (list(made.texts), made.status) == (list(MISO_JA), "fallback")
    assert made.reason
    assert "1 of 1 passages" in caplog.text
    assert not any(sentence in made.reason + caplog.text for sentence in MISO_JA)


def test_the_good_half_of_a_split_passage_is_kept() -> None:
    def respond(body: dict[str, Any]) -> Reply | str:
        sentences = [sentence for sentence in MISO if sentence in asked_content(body)]
        if len(sentences) > 1:
            return Reply('["Miso', "length")
        return "[]" if sentences == list(MISO)[2:] else json.dumps(MISO[sentences[0]])

    with OpenAIServer(respond) as server:
        (made,) = propositionizer(server).propositionize([PASSAGE])
    assert list(made.texts) == [*ALL[:-1], "In 701, a law named it."]
    assert made.status == "fallback"
    assert "part 3 of 3" in made.reason


def test_a_single_sentence_that_was_cut_off_is_asked_for_again_as_it_is() -> None:
    passage = Passage("味噌は、" + "蒸した大豆に麹を混ぜ、" * 12 + "塩を加えて作る。")
    with OpenAIServer(in_turn(Reply('["味噌は', "length"), '["味噌は塩を加えて作る。"]')) as server:
        (made,) = propositionizer(server).propositionize([passage])
    assert (made.texts, made.status) == (("味噌は塩を加えて作る。",), "repaired")
    assert [request.content for request in server.requests] == [passage.text] * 2


@pytest.mark.slow
def test_requests_for_a_passage_are_limited() -> None:
    text = " ".join(f"Fact {n} is true." for n in range(600))
    with OpenAIServer(lambda body: Reply('["a', "length")) as server:
        (made,) = propositionizer(server).propositionize([Passage(text)])
    assert len(server.requests) == 256
    assert (made.status, list(made.texts)) == ("fallback", split_sentences(text))


async def test_sync_and_async_agree_and_both_work_inside_a_running_loop() -> None:
    with OpenAIServer(held({**MISO, **MISO_JA}, max_output_tokens=40)) as server:
        asking = propositionizer(server)
        assert asking.propositionize([PASSAGE, PASSAGE_JA]) == await asking.apropositionize(
            [PASSAGE, PASSAGE_JA]
        )


def test_the_same_propositionizer_serves_one_loop_after_another() -> None:
    with OpenAIServer(held(MISO)) as server:
        asking = propositionizer(server)
        for _ in range(3):
            assert list(asking.propositionize([PASSAGE])[0].texts) == ALL


@pytest.mark.parametrize("limit", [1, 3, 8])
async def test_requests_in_flight_are_limited_and_the_order_is_kept(limit: int) -> None:
    passages = [Passage(f"Fact {n} is true.") for n in range(24)]
    responder: Responder = held({p.text: [f"It is a fact: {p.text}"] for p in passages}, delay=0.03)
    with OpenAIServer(responder) as server:
        for made in (
            await propositionizer(server, max_concurrency=limit).apropositionize(passages),
            propositionizer(server, max_concurrency=limit).propositionize(passages),
        ):
            assert [one.texts for one in made] == [(f"It is a fact: {p.text}",) for p in passages]
    assert server.peak <= limit
    assert (server.peak > 1) == (limit > 1)


@pytest.mark.slow
def test_it_works_after_nest_asyncio() -> None:
    code = """
import asyncio, nest_asyncio
from tests.propositionizers.test_llm import ALL, MISO, PASSAGE, OpenAIServer, held, propositionizer

nest_asyncio.apply()

async def main():
    return asking.propositionize([PASSAGE]) \
+ await asking.apropositionize([PASSAGE]) + asking.propositionize([PASSAGE])

with OpenAIServer(held(MISO)) as server:
    asking = propositionizer(server)
    made = asyncio.run(main()) + asking.propositionize([PASSAGE])
assert [list(one.texts) for one in made] == [ALL] * 4
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_fingerprint_goes_by_what_changes_the_output() -> None:
    def fingerprint(**arguments: Any) -> str:
        own = {
            name: arguments.pop(name)
            for name in ("max_concurrency", "record_to")
            if name in arguments
        }
        settings = {"model": "gpt-4o-mini", "api_key": "sk-a", "temperature": 0.1, **arguments}
        return LLMPropositionizer(OpenAI(**settings), **own).fingerprint

    same = [fingerprint(), fingerprint(api_key="sk-b"), fingerprint(timeout=1.0)]
    same += [fingerprint(max_concurrency=2), fingerprint(record_to="x.jsonl")]
    other = [
        fingerprint(model="gpt-4o"),
        fingerprint(temperature=0.7),
        fingerprint(additional_kwargs={"seed": 1}),
    ]
    other += [
        fingerprint(api_base="http://x/v1"),
        fingerprint(additional_kwargs={"max_completion_tokens": 99}),
    ]
    assert (len(set(same)), len({*same, *other})) == (1, 6)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="llm_factory"):
        LLMPropositionizer()
    with pytest.raises(ValueError, match="LlamaIndex LLM"):
        LLMPropositionizer(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="max_conc"):
        LLMPropositionizer(MockLLM(), max_conc=3)
    with pytest.raises(ValueError, match="max_concurrency"):
        LLMPropositionizer(MockLLM(), max_concurrency=0)
    for name in ("requests_per_minute", "tokens_per_minute", "max_cost", "retry_wait"):
        with pytest.raises(ValueError, match=name):
            LLMPropositionizer(MockLLM(), **{name: float("inf")})
        with pytest.raises(ValueError, match=name):
            setattr(LLMPropositionizer(MockLLM()), name, -1)
    with pytest.raises(TypeError, match=r"PromptTemplate\(\.\.\.\), not a str"):
        LLMPropositionizer(MockLLM(), proposition_prompt="{content}")  # type: ignore[arg-type]


def test_messages_are_llama_index_chat_messages() -> None:
    prompt = LLMPropositionizer(MockLLM()).get_prompts()["japanese_proposition_prompt"]
    messages = prompt.format_messages(title="t", section="s", content="c", note="")
    assert all(isinstance(message, ChatMessage) for message in messages)
    assert messages[-1].content == "Title: t. Section: s. Content: c"
