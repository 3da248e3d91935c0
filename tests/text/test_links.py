"""What models and searches see of links, pictures and struck-out text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_pack_densex.text.links import readable_text, searchable_text

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("text", "searched"),
    [
        ("Fill in [the form](https://example.com/f?id=1#top).", "Fill in the form."),
        ("詳細は[こちら](/handbook/a_(b)/#c)をご覧ください。", "詳細はこちらをご覧ください。"),
        (
            "[text][1] は[別][ref-2]である。\n\n[1]: https://example.com 'T'",
            "text は別である。\n\n",
        ),
        ("See [a [b] c](u) and [x](<u v> 'title').", "See a [b] c and x."),
        (
            "Write to <https://example.com/c>, or (https://www.example.org/f).",
            "Write to example.com, or (example.org).",
        ),
        ("https://ja.wikipedia.org/wiki/東京を参照。", "ja.wikipedia.org東京を参照。"),
        ("[![build](b.svg)](https://ci.example.com) # Tool", " # Tool"),
        ("![The floor plan](plan.png) of 1998", "The floor plan of 1998"),
        ("![][image1]\n\n[image1]: <data:image/png;base64,iVBORw0KGgo=>", "\n\n"),
        (
            "The fee is ~~80 euros~~ 70 euros. <del>Dogs</del><s>Cats</s> Birds may come.",
            "The fee is 70 euros. Birds may come.",
        ),
        (
            "One<br>two <b>three</b> <a href='https://example.com'>four</a><!-- five -->",
            "One two three four",
        ),
        ("10<sup>-3</sup> of 50 m<sup>2</sup>, the 1<sup>st</sup>", "10^-3 of 50 m2, the 1st"),
    ],
)
def test_words_stay_and_targets_go(text: str, searched: str) -> None:
    assert searchable_text(text) == searched


@pytest.mark.parametrize(
    "text",
    [
        "matrix[i][j] = f(x)[1](2)",
        "a < b and c > d; x<y",
        "- [ ] to do\n- [x] done[^1]\n\n[^1]: A footnote. [[Wiki page]]",
        "~~~\ncode\n~~~",
        "Write `~~text~~` to strike it out.",
        "取り消しは`<del>`で始まり`</del>`で終わる。",
        "Use `<tr>` for a row, ``List<A>`` for a list, `<!--` and `-->` for comments, `[text](url)`.",
        "The address is `https://api.example.com/v2`.",
        "metadata: none",
        "1〜3日、約~5個",
    ],
)
def test_what_is_no_link_stays(text: str) -> None:
    assert searchable_text(text) == text


def test_links_whose_words_are_code_are_links() -> None:
    text = "See [`<tr>`](https://example.com/tr), and `a\n\nb<b>c</b>`."
    assert searchable_text(text) == "See `<tr>`, and `a\n\nbc`."


def test_links_stay_in_what_an_llm_reads_and_the_bytes_of_pictures_do_not() -> None:
    text = "See [this](https://example.com). ![a](data:image/png;base64,iVBORw0KGgo=) END"
    assert readable_text(text) == "See [this](https://example.com). ![a]() END"


@given(st.text(alphabet="[]()!~<>-a:/ \n.\"'|x", max_size=120))
def test_nothing_is_made_up(text: str) -> None:
    assert len(searchable_text(text)) <= len(text)


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "[a](",
        "![",
        "~~a",
        "<a ",
        "data:",
        "http://",
        "(",
        "<!--",
        "[x][y]",
        "<s>",
        "[a",
        "[![a](b)](",
    ],
)
def test_beginnings_without_ends_are_read_to_the_end_of_a_long_text(piece: str) -> None:
    assert searchable_text(f"{piece * 5_000}\n\nIt rained.").endswith("It rained.")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("See other\\_specs.pdf.", "See other_specs.pdf."),
        ("It costs \\$5 and 3 \\* 4; string\\[].", "It costs $5 and 3 * 4; string[]."),
        ('[The map](a.html){.wide width="50%"} shows it.', "The map shows it."),
        ("See {external+tc:doc}`the guide <index>` and {math}`x`.", "See the guide and x."),
        ("Use {% raw %}`{{ x }}`{% endraw %} {% include new.html %}.", "Use `{{ x }}` ."),
        ("<ruby>潮<rt>しお</rt></ruby>は<dfn title='x'>満ちる</dfn>。", "潮は満ちる。"),
        ("AT&amp;T&nbsp;は&#x3042;", "AT&T はあ"),
        ("a &lt;name&gt; of 5 &notanentity;", "a <name> of 5 &notanentity;"),
        ("`a\\_b &lt;` stays", "`a\\_b &lt;` stays"),
        (r"\\[ x \\] and C:\\new", r"\\[ x \\] and C:\\new"),
    ],
)
def test_escapes_of_markdown_and_html_are_resolved_outside_of_code(text: str, words: str) -> None:
    assert searchable_text(text) == words
