"""Quotations, and the boxes and tabs of Markdown's dialects."""

from __future__ import annotations

import pytest

from llama_pack_densex.text.outline import Outline
from llama_pack_densex.text.segments import passage_sentences

BOXES = {
    "GitHub": "> [!{kind}]\n> {text}",
    "Docusaurus": ":::{kind}\n{text}\n:::",
    "Docusaurus, blank lines": ":::{kind}\n\n{text}\n\n:::",
    "VitePress": "::: {kind}\n{text}\n:::",
    "Pandoc": "::: {{.{kind}}}\n{text}\n:::",
    "Zenn": ":::message {kind}\n{text}\n:::",
    "DocFX": '::: zone pivot="{kind}"\n{text}\n::: zone-end',
    "MkDocs": "!!! {kind}\n    {text}",
    "MkDocs, folded": "??? {kind}\n\n    {text}",
    "MkDocs, slashes": "/// {kind}\n\n{text}\n\n///",
    "MyST": "```{{{kind}}}\n:class: dropdown\n{text}\n```",
    "MyST, colons": ":::{{{kind}}}\n:class: x\n{text}\n:::",
    "Hugo": "{{{{< {kind} >}}}}\n{text}\n{{{{< /{kind} >}}}}",
    "Hugo, Markdown": '{{{{% {kind} color="red" %}}}}\n{text}\n{{{{% /{kind} %}}}}',
    "GitBook": '{{% hint style="{kind}" %}}\n{text}\n{{% endhint %}}',
    "Markdoc": "{{% {kind} %}}\n{text}\n{{% /{kind} %}}",
}


@pytest.mark.parametrize(
    "sentences", [("Keys expire. Renew them.",), ("鍵は失効する。更新せよ。",)]
)
@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
def test_the_marks_of_a_box_state_nothing(box: str, sentences: tuple[str]) -> None:
    text = "Before.\n\n" + box.format(kind="note", text=sentences[0]) + "\n\nAfter."
    stated = passage_sentences(text)
    assert (stated[0], stated[-1]) == ("Before.", "After.")
    assert len(stated) == 4
    assert "".join(stated[1:3]).replace(" ", "") == sentences[0].replace(" ", "")


TITLED = {
    "Obsidian": "> [!tip]- {title}\n> Press it.",
    "Docusaurus": ":::caution[{title}]\nPress it.\n:::",
    "VitePress": "::: details {title}\nPress it.\n:::",
    "Quarto": "::: {{.callout-note title=\"{title}\"}}\nPress it.\n:::",
    "MkDocs": "!!! warning inline \"{title}\"\n    Press it.",
    "MkDocs, tab": "=== \"{title}\"\n\n    Press it.",
    "MkDocs, slashes": "/// details | {title}\nPress it.\n///",
    "MyST": "```{{admonition}} {title}\nPress it.\n```",
    "MyST, nested": "````{{card}} {title}\n```{{note}}\nPress it.\n```\n````",
    "Docsy": "{{{{% alert title=\"{title}\" color=\"warning\" %}}}}\nPress it.\n{{{{% /alert %}}}}",
    "Kubernetes": "{{{{< tab name=\"{title}\" >}}}}\nPress it.\n{{{{< /tab >}}}}",
    "Hugo Book": "{{{{< details \"{title}\" >}}}}\nPress it.\n{{{{< /details >}}}}",
    "GitBook": "{{% tabs %}}\n{{% tab title=\"{title}\" %}}\nPress it.\n{{% endtab %}}\n{{% endtabs %}}",
}  # fmt: skip


@pytest.mark.parametrize("title", ["On macOS", "重要なお知らせ"])
@pytest.mark.parametrize("box", TITLED.values(), ids=TITLED)
def test_a_title_is_the_heading_of_what_is_in_its_box(box: str, title: str) -> None:
    text = "# Keys\n\nBefore.\n\n" + box.format(title=title) + "\n\nAfter it.\n"
    outline = Outline(text)
    sections = {
        text[block.start : block.end]: outline.section_of(*block.span)
        for block in outline.blocks
        if block.kind == "prose"
    }
    assert sections == {
        "Before.": "Keys",
        "Press it.": f"Keys, {title}",
        "After it.": "Keys",
    }


@pytest.mark.parametrize(
    "line",
    [
        "> [!WARNING] Never press it.",
        ":::info[Never press it.]",
        ":::{tip} Never press it.",
        "/// tip | Never press it.",
    ],
)
def test_a_title_that_is_a_sentence_is_stated(line: str) -> None:
    quoted = "> " if line.startswith(">") else ""
    text = f"{line}\n{quoted}It burns."
    assert passage_sentences(text) == ("Never press it.", "It burns.")


@pytest.mark.parametrize(
    "text",
    [
        "```md\n:::tip\nPress it.\n:::\n```",
        "~~~md\n> [!NOTE]\n> Press it.\n~~~",
        "```python\n{% raw %}\n```",
        "```{code-block} python\nx = 1\n```",
    ],
)
def test_marks_within_code_are_code(text: str) -> None:
    assert passage_sentences(text) == (text,)


@pytest.mark.parametrize(
    "code",
    [
        "{% highlight ruby %}\n# puts 1. Is it? Yes.\n\nx\n{% endhighlight %}",
        "{{< highlight go >}}\n# puts 1. Is it? Yes.\n{{< /highlight >}}",
        "{{< code-toggle file=hugo >}}\n[build]\nx = 1\n{{< /code-toggle >}}",
    ],
)
def test_code_between_tags_is_code(code: str) -> None:
    assert passage_sentences(f"前。\n\n{code}\n\nAfter.") == ("前。", code, "After.")


def test_code_between_tags_that_never_ends_is_text() -> None:
    assert passage_sentences("{% highlight %}\nOne. Two.") == ("One.", "Two.")


@pytest.mark.parametrize(
    "text", ["::: is a mark of a box.", "See {{ site.name }}.", '=== "a" and "b"']
)
def test_what_only_looks_like_a_mark_is_text(text: str) -> None:
    assert passage_sentences(text) == (text,)


def test_a_mark_of_indented_content_needs_it() -> None:
    assert passage_sentences("!!! wow\nIt works.") == ("!!! wow", "It works.")


def test_a_passage_may_end_with_a_mark() -> None:
    assert passage_sentences("It works.\n\n!!! note") == ("It works.",)


def test_a_picture_that_is_a_tag_heads_nothing() -> None:
    text = '# Sea\n\n{{< figure src="a.png" title="The sea" >}}\n\nIt is blue.'
    outline = Outline(text)
    assert outline.section_of(text.index("It"), len(text)) == "Sea"


def test_words_of_shortcodes_within_a_sentence_stay() -> None:
    text = 'A {{< glossary_tooltip text="Pod" term_id="pod" >}} restarts, see {{< ref "a.md" >}}.'
    assert passage_sentences(text) == ("A Pod restarts, see .",)


def test_a_wrapped_sentence_of_a_quotation_stays_whole() -> None:
    quotation = (
        "> To be, or not to be, that is the\n> question. Whether 'tis nobler\n> in the mind."
    )
    text = f"He wrote:\n\n{quotation}\n\nSo."
    assert passage_sentences(text) == (
        "He wrote:",
        "To be, or not to be, that is the\nquestion.",
        "Whether 'tis nobler\nin the mind.",
        "So.",
    )


def test_a_sentence_that_begins_a_line_of_a_quotation_has_no_mark() -> None:
    text = (
        "> Tides are caused by the moon, and a little by the sun as well.\n> They rise twice a day."
    )
    assert passage_sentences(text)[1] == "They rise twice a day."


def test_a_quoted_mail_is_apart_from_the_reply() -> None:
    quotation = "> He came yesterday and he said that he would like\n> to stay. I agreed."
    sentences = (
        "He came yesterday and he said that he would like\nto stay.",
        "I agreed.",
        "Fine.",
    )
    assert passage_sentences(f"{quotation}\nFine.") == sentences
    text = f"On Monday Ann wrote:\n{quotation}\nFine."
    assert passage_sentences(text) == ("On Monday Ann wrote:", *sentences)


def test_lists_and_tables_in_a_quotation_are_lists_and_tables() -> None:
    text = "> Bring:\n>\n> - a coat\n>   - and boots\n>\n> | part | price |\n> | --- | --- |\n> | P1 | 940 |"
    assert passage_sentences(text) == (
        "Bring:",
        "- a coat",
        "- and boots",
        "part: P1; price: 940",
    )


def test_a_heading_in_a_quotation_is_none_of_what_follows_it() -> None:
    text = "# Tides\n\n> ## A remark\n> They rise.\n\nThey fall."
    outline = Outline(text)
    assert (
        outline.section_of(text.index("They rise"), text.index("They rise") + 10)
        == "Tides, A remark"
    )
    assert outline.section_of(text.index("They fall"), len(text)) == "Tides"


@pytest.mark.parametrize("text", ["> 5 mg are too much.", ">>> print(1)"])
def test_what_only_looks_like_a_quotation_keeps_its_mark(text: str) -> None:
    assert passage_sentences(text) == (text,)


def test_a_tag_may_end_on_a_line_of_its_own() -> None:
    text = 'The logo: <img\n  src="a.png"\n>\nand its text.'
    assert " ".join(" ".join(passage_sentences(text)).split()) == "The logo: and its text."


def test_a_passage_that_begins_within_a_quotation_has_the_sentences_of_the_document() -> None:
    text = "> Strings are usually converted by rules of the\n> invariant culture. Others are not."
    sentences = passage_sentences(text)
    assert sentences == passage_sentences(text.removeprefix("> "))
    assert len(sentences) == 2
