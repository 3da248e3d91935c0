from __future__ import annotations

import pytest

from llama_pack_densex.retrieval.tokens import tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("東京優駿", ["東京", "京優", "優駿"]),
        ("雨", ["雨"]),
        ("ドウデュース", ["ドウ", "ウデ", "デュ", "ュー", "ース"]),
        ("ﾄﾞｳ", ["ドウ"]),
        ("ＧⅠレース２着", ["gi", "レー", "ース", "2", "着"]),
        ("The runners were running", ["runner", "run"]),
        ("1,200 metres in 1998", ["1200", "metr", "1998"]),
        ("iPhone15を買う", ["iphone15", "を買", "買う"]),
        ("서울은 수도", ["서울", "울은", "수도"]),
        ("Ünïcode ÜNÏCODE", ["ünïcode", "ünïcode"]),
        ("", []),
        ("?!…。", []),
    ],
)
def test_text_becomes_these_tokens(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


def test_a_grouped_number_is_a_plain_one() -> None:
    assert tokenize("1,991") == tokenize("１９９１")
