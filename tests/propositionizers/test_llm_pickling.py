"""Serialised propositionizers hold no client and no key, and work again elsewhere or say what they miss."""

from __future__ import annotations

import copy
import json
import os
import pickle
import pkgutil
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai import OpenAI
from openai import OpenAI as OpenAIClient

from llama_pack_densex.llm.cache import ReplyCache
from llama_pack_densex.propositionizers.base import Passage
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from tests.another_process import run_program
from tests.openai_server import OpenAIServer, held

pytestmark = pytest.mark.together("forks")

KEY = "sk-proj-A1b2C3d4E5f6G7h8"
SECRETS = (KEY, "hunter2", "header-token", "query-token")
PASSAGE = Passage("Miso is salty.", "Miso")
RIGHT = {"Miso is salty.": ["Miso is a salty seasoning."]}
HERE = "tests.propositionizers.test_llm_pickling"


def make_llm() -> LLM:
    return OpenAI(
        model="gpt-4o-mini",
        api_base=os.environ["TEST_API_BASE"],
        api_key="sk-from-a-vault",
        temperature=0.3,
    )


def make_another_llm() -> LLM:
    return OpenAI(model="gpt-4o", api_key="sk-from-a-vault")


def make_nothing() -> None:
    return None


def openai(**settings: Any) -> OpenAI:
    return OpenAI(
        **{"model": "gpt-4o-mini", "api_key": KEY, "max_retries": 0, "temperature": 0.3, **settings}
    )


UNPICKLING = """
import json, pickle, sys
from llama_pack_densex.propositionizers.base import Passage
asking = pickle.load(open(sys.argv[1], "rb"))
(made,) = asking.propositionize([Passage(sys.argv[2], "Miso")])
print(json.dumps([made.texts, made.status, asking.fingerprint, asking.max_concurrency]))
"""


def test_nothing_serialised_holds_a_secret() -> None:
    llm = openai(
        api_base="https://user:hunter2@localhost/v1?token=query-token",
        default_headers={"Authorization": "Bearer header-token"},
        additional_kwargs={"extra_headers": {"X-Key": "header-token"}},
    )
    asking = LLMPropositionizer(llm)
    shown = [
        json.dumps(asking.to_dict()),
        asking.to_json(),
        asking.model_dump_json(),
        repr(asking),
        str(asking),
    ]
    for secret in SECRETS:
        assert secret.encode() not in pickle.dumps(asking)
        assert not any(secret in text for text in shown)
        assert secret not in json.dumps(asking.fingerprint_data())


def test_the_dictionary_says_what_the_output_depends_on() -> None:
    data = LLMPropositionizer(openai(), max_concurrency=3, record_to="x.jsonl").to_dict()
    assert data["class_name"] == "LLMPropositionizer"
    assert data["fingerprint"] == LLMPropositionizer(openai(api_key="sk-other")).fingerprint
    assert data["llm"]["settings"]["model"] == "gpt-4o-mini"
    assert (data["max_concurrency"], data["record_to"]) == (3, "x.jsonl")


def test_a_pickled_one_works_elsewhere_with_the_key_from_the_environment(tmp_path: Path) -> None:
    with OpenAIServer(held(RIGHT)) as server:
        asking = LLMPropositionizer(openai(api_base=server.url), max_concurrency=3)
        file = tmp_path / "propositionizer.pickle"
        file.write_bytes(pickle.dumps(asking))
        code, output, errors = run_program(
            UNPICKLING, file, PASSAGE.text, OPENAI_API_KEY="sk-of-the-other-process"
        )
    assert code == 0, errors
    assert json.loads(output) == [["Miso is a salty seasoning."], "ok", asking.fingerprint, 3]
    assert server.requests[0].headers["Authorization"] == "Bearer sk-of-the-other-process"
    assert server.requests[0].body["temperature"] == 0.3


def test_one_that_has_already_asked_is_pickled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    with OpenAIServer(held(RIGHT)) as server:
        asking = LLMPropositionizer(openai(api_base=server.url))
        made = asking.propositionize([PASSAGE])
        assert pickle.loads(pickle.dumps(asking)).propositionize([PASSAGE]) == made


def test_without_a_key_unpickling_fails_and_names_it() -> None:
    pickled = pickle.dumps(LLMPropositionizer(openai()))
    with pytest.raises(ValueError, match=r"OPENAI_API_KEY.*llm_factory"):
        pickle.loads(pickled)


OWN_CLASSES = """
import os
from typing import Any
from llama_index.llms.openai_like import OpenAILike

class OwnLLM(OpenAILike):
    def __init__(self, api_key: str | None = None, **settings: Any) -> None:
        super().__init__(api_key=api_key or os.environ.get("OWN_API_KEY"), **settings)
"""


@pytest.mark.parametrize(
    ("path", "variable"),
    [
        ("llama_index.llms.openai:OpenAI", "OPENAI_API_KEY"),
        ("llama_index.llms.openai_like:OpenAILike", "OPENAI_API_KEY"),
        ("own_classes_of_llms:OwnLLM", "OWN_API_KEY"),
    ],
)
def test_the_variable_that_is_named_is_read(
    path: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_classes_of_llms.py").write_text(OWN_CLASSES)
    monkeypatch.syspath_prepend(tmp_path)
    llm_class = pkgutil.resolve_name(path)
    pickled = pickle.dumps(LLMPropositionizer(llm_class(model="gpt-4o-mini", api_key=KEY)))
    with pytest.raises(ValueError, match="environment variable") as raised:
        pickle.loads(pickled)
    assert re.findall(r"\w+_API_KEY", str(raised.value)) == [variable]
    monkeypatch.setenv(variable, "sk-another")
    assert pickle.loads(pickled).llm.api_key == "sk-another"


def test_a_factory_makes_the_llm_where_it_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(held(RIGHT)) as server:
        monkeypatch.setenv("TEST_API_BASE", server.url)
        asking = LLMPropositionizer(openai(api_base=server.url), llm_factory=make_llm)
        assert pickle.loads(pickle.dumps(asking)).propositionize([PASSAGE])[0].status == "ok"
    assert server.requests[0].headers["Authorization"] == "Bearer sk-from-a-vault"


def test_a_factory_may_be_given_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_API_BASE", "http://127.0.0.1:9/v1")
    asking = LLMPropositionizer(
        openai(api_base="http://127.0.0.1:9/v1"), llm_factory=f"{HERE}:make_llm"
    )
    assert pickle.loads(pickle.dumps(asking)).llm.api_key == "sk-from-a-vault"


def test_a_factory_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(held(RIGHT)) as server:
        monkeypatch.setenv("TEST_API_BASE", server.url)
        assert LLMPropositionizer(llm_factory=make_llm).propositionize([PASSAGE])[0].status == "ok"


def test_a_factory_that_makes_another_model_is_refused() -> None:
    pickled = pickle.dumps(LLMPropositionizer(openai(), llm_factory=make_another_llm))
    with pytest.raises(ValueError, match="not the one that was saved"):
        pickle.loads(pickled)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda: MockLLM(), "top level of a module"),
        ("nowhere:make", "nowhere"),
        ("tests.openai_server:nothing", "nothing"),
        ("no-colon", "module:name"),
        (make_nothing, "NoneType"),
    ],
)
def test_a_factory_that_could_not_be_used_elsewhere_is_refused_at_once(
    factory: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        LLMPropositionizer(llm_factory=factory)


@pytest.mark.parametrize(
    "setting",
    [
        {"default_headers": {"X-Team": "a"}},
        {"additional_kwargs": {"seed": 1}},
        {"api_base": "http://user:hunter2@localhost/v1"},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_that_may_hold_secrets_are_missed_by_name(
    setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    pickled = pickle.dumps(LLMPropositionizer(openai(**setting)))
    with pytest.raises(ValueError, match=next(iter(setting))):
        pickle.loads(pickled)


def test_prompts_and_arguments_survive_pickling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    asking = LLMPropositionizer(
        openai(), proposition_prompt=PromptTemplate("Split {content}"), record_to="x.jsonl"
    )
    again = pickle.loads(pickle.dumps(asking))
    assert again.get_prompts()["proposition_prompt"].get_template() == "Split {content}"
    assert (again.fingerprint, again.record_to) == (asking.fingerprint, "x.jsonl")


def test_an_llm_without_keys_needs_nothing() -> None:
    again = pickle.loads(pickle.dumps(LLMPropositionizer(MockLLM(max_tokens=7))))
    assert again.llm.max_tokens == 7


def test_copies_in_the_process_share_the_client_but_not_the_prompts() -> None:
    with OpenAIServer(held(RIGHT)) as server:
        asking = LLMPropositionizer(openai(api_base=server.url))
        asking.propositionize([PASSAGE])
        copies = [
            copy.deepcopy(asking),
            copy.copy(asking),
            asking.model_copy(),
            asking.model_copy(deep=True),
        ]
        for one in copies:
            assert one.llm is asking.llm
            assert one.propositionize([PASSAGE])[0].texts == ("Miso is a salty seasoning.",)
    copies[0].update_prompts({"proposition_prompt": PromptTemplate("Split {content}")})
    assert {one.fingerprint for one in (asking, *copies[1:])} == {asking.fingerprint}
    assert copies[0].fingerprint != asking.fingerprint


def test_a_dictionary_makes_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    asking = LLMPropositionizer(openai(), max_attempts=2)
    assert LLMPropositionizer.from_json(asking.to_json()).fingerprint == asking.fingerprint
    assert LLMPropositionizer.from_dict(asking.to_dict(), llm=MockLLM()).max_attempts == 2
    custom = LLMPropositionizer(openai(), proposition_prompt=PromptTemplate("Split {content}"))
    with pytest.raises(ValueError, match="prompts"):
        LLMPropositionizer.from_dict(custom.to_dict())


def test_a_client_that_was_given_is_not_exchanged_for_another_one_elsewhere() -> None:
    own = OpenAIClient(api_key=KEY, base_url="http://gateway.internal/v1")
    asking = LLMPropositionizer(OpenAI(model="gpt-4o-mini", api_key=KEY, openai_client=own))
    with pytest.raises(ValueError, match="a client that was given"):
        pickle.loads(pickle.dumps(asking))


def test_a_client_that_was_made_for_use_does_not_stand_in_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    llm = OpenAI(model="gpt-4o-mini", api_key=KEY)
    llm._get_client()
    assert pickle.loads(pickle.dumps(LLMPropositionizer(llm))).llm.model == "gpt-4o-mini"


@pytest.mark.parametrize(
    "again", [lambda one: pickle.loads(pickle.dumps(one)), lambda one: one.from_dict(one.to_dict())]
)
def test_a_cache_forgets_as_early_as_before(
    again: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    cache = ReplyCache(tmp_path / "replies.db", max_age=timedelta(days=90))
    made = again(LLMPropositionizer(openai(), cache=cache)).cache
    assert (made.path, made.max_age) == (cache.path, cache.max_age)
