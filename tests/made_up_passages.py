"""Passages that are made up, the same in every run, and an LLM in this process that answers at once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
)
from llama_index.core.llms import CustomLLM

from llama_pack_densex import Passage
from tests.stand_in_llm import propositions_of


def made_up(count: int, japanese: float) -> Iterator[Passage]:
    """Passages of some 170 tokens, of which a share is in Japanese."""
    for number in range(count):
        rng = random.Random(number)
        if int((number + 1) * japanese) > int(number * japanese):
            text = "".join(_japanese_sentence(rng) for _ in range(3))
            yield Passage(text, title=f"{rng.choice(_PLACES_JA)}の歴史", section="建設")
        else:
            text = " ".join(_english_sentence(rng) for _ in range(6))
            yield Passage(text, title=f"History of {rng.choice(_PLACES)}", section="Construction")


class InstantLLM(CustomLLM):
    """Answers at once, in this process."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="instant", is_chat_model=True)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        asked = (messages[-1].content or "").rpartition(". Content: ")[2]
        reply = json.dumps(propositions_of(asked), ensure_ascii=False)
        usage = {"prompt_tokens": 600, "completion_tokens": 400, "total_tokens": 1000}
        raw = {"choices": [{"finish_reason": "stop"}], "usage": usage}
        return ChatResponse(message=ChatMessage(reply, role="assistant"), raw=raw)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self.chat(messages)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError("a chat model")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError("a chat model")


def _english_sentence(rng: random.Random) -> str:
    adjective, other = rng.sample(_ADJECTIVES, 2)
    thing, near = rng.sample(_THINGS, 2)
    return (
        f"The {adjective} {thing} of {rng.choice(_PLACES)} was {rng.choice(_VERBS)} by {rng.choice(_NAMES)} "
        "in "
        f"{rng.randint(1500, 1999)}, and {rng.randint(3, 99)} {rng.choice(_PEOPLE)} kept it near the {other} "
        f"{near}."
    )


def _japanese_sentence(rng: random.Random) -> str:
    adjective, other = rng.sample(_ADJECTIVES_JA, 2)
    thing, near = rng.sample(_THINGS_JA, 2)
    return (
        f"{rng.choice(_PLACES_JA)}の{adjective}{thing}は{rng.randint(1500, 1999)}年に"
        f"{rng.choice(_NAMES_JA)}によって{rng.choice(_VERBS_JA)}、"
        f"その後{rng.randint(3, 99)}人の{rng.choice(_PEOPLE_JA)}が{other}{near}で守った。"
    )


_ADJECTIVES = [
    "old",
    "narrow",
    "famous",
    "quiet",
    "painted",
    "northern",
    "wooden",
    "broken",
    "tall",
    "early",
]
_THINGS = [
    "bridge",
    "lighthouse",
    "harbour",
    "school",
    "mill",
    "market",
    "library",
    "tower",
    "railway",
    "garden",
]
_PLACES = [
    "Arlen",
    "Tromsø",
    "Karsted",
    "Velmoor",
    "Dunbrae",
    "Ostrava",
    "Lindholm",
    "Carrick",
    "Porto",
    "Segovia",
]
_PEOPLE = [
    "engineers",
    "fishermen",
    "teachers",
    "painters",
    "masons",
    "gardeners",
    "printers",
    "weavers",
]
_NAMES = [
    "Ida Brandvold",
    "Nils Aker",
    "Ruth Calder",
    "Omar Haddad",
    "Lena Fischer",
    "Paul Moreau",
    "Mary Quill",
]
_VERBS = [
    "designed",
    "built",
    "restored",
    "sold",
    "described",
    "moved",
    "measured",
    "closed",
    "opened",
    "drawn",
]
_ADJECTIVES_JA = [
    "古い",
    "狭い",
    "有名な",
    "静かな",
    "北側の",
    "木造の",
    "壊れた",
    "高い",
    "初期の",
    "小さな",
]
_THINGS_JA = ["橋", "灯台", "港", "学校", "製粉所", "市場", "図書館", "塔", "駅", "庭園"]
_PLACES_JA = ["函館", "霧ヶ浜", "松江", "釜石", "長崎", "尾道", "金沢", "輪島", "高知", "酒田"]
_PEOPLE_JA = ["技師", "漁師", "教師", "画家", "石工", "庭師", "印刷工", "織工", "船員", "書記"]
_NAMES_JA = [
    "佐伯いと",
    "田中清吉",
    "森下はる",
    "大野健",
    "川村ゆき",
    "長谷川誠",
    "井上さよ",
    "小林武",
]
_VERBS_JA = [
    "設計され",
    "建てられ",
    "修復され",
    "売られ",
    "記録され",
    "移され",
    "測量され",
    "閉じられ",
    "開かれ",
]
