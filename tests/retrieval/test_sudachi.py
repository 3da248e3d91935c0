from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.stores.words import Words

pytestmark = pytest.mark.skipif(
    find_spec("sudachipy") is None or find_spec("sudachidict_core") is None,
    reason='needs SudachiPy and its core dictionary: pip install "llama-pack-densex[sudachi]"',
)


def split(text: str) -> list[str]:
    return list(Words.by("sudachi").split(text))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("東京都庁で静かに打込みをした。", ["東京都庁", "静か", "打ち込み", "為る"]),
        ("食べられなかった", ["食べる"]),
        ("ﾄﾞｲﾂの自動車", ["ドイツ", "自動車"]),
        ("または、〜。", []),
        ("The runners ran 1,200 metres", ["runner", "ran", "1200", "metr"]),
        ("iPhoneを買う", ["買う", "iphon"]),
        ("서울은 東京", ["東京", "서울", "울은"]),
        ("𠮷野家", ["𠮷", "野家"]),
        ("雨\ud800犬", ["雨", "犬"]),
        ("", []),
        (" \n。\n", []),
    ],
)
def test_japanese_becomes_its_content_words(text: str, tokens: list[str]) -> None:
    assert split(text) == tokens


@pytest.mark.parametrize(
    ("text", "word", "count"),
    [("東京へ行く。", "東京", 20_000), ("東京へ行く\n", "行く", 20_000), ("東京へ行く", "東京", 20_000)],
)
def test_texts_longer_than_sudachi_takes_are_split_too(text: str, word: str, count: int) -> None:
    assert split(text * count).count(word) == pytest.approx(count, abs=count / 1000)


@pytest.mark.parametrize("character", ["雨", "𠮷", "😀", "a", "\n", "。"])
def test_any_long_run_of_one_character_is_split(character: str) -> None:
    split(character * 60_000)


def test_several_threads_may_split_at_once() -> None:
    tokenizer = Words.by("sudachi")
    texts = [f"東京で第{number}回の大会が静かに開かれた。" * 20 for number in range(100)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.split, texts)) == [tokenizer.split(text) for text in texts]


@given(st.text(st.sampled_from("東京ータa1 。\n\ud800가😀ﾞ㌖İ")))
def test_any_text_can_be_split(text: str) -> None:
    assert all(token.strip() for token in split(text))


def test_without_sudachi_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sudachidict_core", None)
    with pytest.raises(ImportError, match=r'pip install "llama-pack-densex\[sudachi\]"'):
        Words.by("sudachi")
