"""How the site is built: `make docs` writes it to build/docs, with every warning an error.

Pages are Markdown that GitHub shows as well. Made while building, and not kept: notebooks with what they
print (notebooks/), the reference of the command line, and llms.txt.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from sphinx.addnodes import toctree
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

from command_line import reference  # noqa: E402

project = "llama-pack-densex"
copyright = "the llama-pack-densex authors"
language = "en"
smartquotes = False  # it makes a dash of the two hyphens of an option
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "llama-pack-densex"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"
nb_execution_show_tb = True

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
default_role = "code"

copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
linkcheck_ignore = [
    r"https://github\.com/OWNER/.*",
    r"https://colab\..*/OWNER/.*",
    r"http://(localhost|127\.0\.0\.1).*",
]

METADATA = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
REPOSITORY = re.search(r'^Repository = "(.*)"$', METADATA, re.MULTILINE)[1]
LINK_TO_A_NOTEBOOK = re.compile(r"\]\(\.\./(?P<path>(?:\.\./)?notebooks/)")
LINK_OUT_OF_DOCS = re.compile(
    r"\]\((?:\.\./)+(?P<path>(?:benchmarks/|tests/|README|CONTRIBUTING|SECURITY|CHANGELOG)[^)]*)\)"
)


class BilingualSearch(SearchEnglish):
    """The search of the site: words, of Japanese all pairs of characters."""

    japanese = r"\u3005\u3040-\u30ff\u4e00-\u9fff"
    runs = re.compile(rf"[{japanese}]+|[^\W{japanese}]+")
    js_splitter_code = rf"""
function splitQuery(query) {{
  const runs = /[{japanese}]+|(?:(?![{japanese}])[\p{{Letter}}\p{{Number}}_])+/gu;
  return (query.match(runs) || []).flatMap((run) => {{
    if (run.length === 1 || !/[{japanese}]/.test(run)) return [run];
    return Array.from({{ length: run.length - 1 }}, (_, at) => run.slice(at, at + 2));
  }});
}}
"""

    def split(self, input: str) -> list[str]:
        words: list[str] = []
        for run in self.runs.findall(input):
            if len(run) == 1 or not re.match(f"[{self.japanese}]", run):
                words.append(run)
            else:
                words += [run[at : at + 2] for at in range(len(run) - 1)]
        return words


def setup(app: Sphinx) -> None:
    copy_notebooks(DOCS / "notebooks")
    (DOCS / "reference" / "command-line.md").write_text(reference(), encoding="utf-8")
    app.add_search_language(BilingualSearch)
    app.connect("source-read", link_to_the_repository)
    app.connect("html-page-context", name_the_language)
    app.connect("html-page-context", serve_everyone, priority=900)  # after furo's own
    app.connect("build-finished", write_llms_txt)


def copy_notebooks(folder: Path) -> None:
    """Notebooks as they will be run: the cell that installs the package is shown and left out."""
    folder.mkdir(exist_ok=True)
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        notebook = nbformat.read(file, as_version=4)
        for cell in notebook.cells:
            if "%pip" in cell.source:
                cell.metadata["tags"] = ["skip-execution"]
        text = nbformat.writes(notebook)
        copy = folder / file.name
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:
            copy.write_text(text, encoding="utf-8")


def link_to_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """Files that are not on the site are linked to where they are, notebooks to their copies here."""
    source[0] = LINK_TO_A_NOTEBOOK.sub(r"](\g<path>", source[0])
    source[0] = LINK_OUT_OF_DOCS.sub(rf"]({REPOSITORY}/blob/main/\g<path>)", source[0])


def name_the_language(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Browsers and screen readers read Japanese pages as Japanese."""
    if page.startswith("ja/") or page.endswith("_ja"):
        context["language"] = "ja"


def serve_everyone(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """What the theme leaves out: levels of headings, what the keyboard can scroll."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')
    body = context.get("body", "").replace("<pre", '<pre tabindex="0"')
    context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')


def write_llms_txt(app: Sphinx, error: Exception | None) -> None:
    """The pages and what each is about, for a language model to choose from (https://llmstxt.org)."""
    if error or app.builder.name != "html":
        return
    lines = [
        f"# {project}",
        "",
        "> Dense X Retrieval for LlamaIndex: search propositions, read their passages.",
        "",
    ]
    for caption, pages in sections(app):
        lines += [f"## {caption}", ""]
        for page in pages:
            title = app.env.titles[page].astext()
            suffix = Path(app.env.doc2path(page)).suffix
            lines.append(f"- [{title}](_sources/{page}{suffix}.txt): {first_sentence(app, page)}")
        lines.append("")
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def sections(app: Sphinx) -> Iterator[tuple[str, list[str]]]:
    """The captions of the home page's tree, each with its pages and those below them."""
    for tree in app.env.get_doctree("index").findall(toctree):
        pages: list[str] = []
        for page in tree["includefiles"]:
            pages += [page, *app.env.toctree_includes.get(page, [])]
        yield tree["caption"], pages


def first_sentence(app: Sphinx, page: str) -> str:
    for paragraph in app.env.get_doctree(page).findall(nodes.paragraph):
        is_badge = any(paragraph.findall(nodes.image))
        if isinstance(paragraph.parent, nodes.section) and not is_badge:
            return re.split(r"(?<=[.])\s|(?<=。)", " ".join(paragraph.astext().split()))[0]
    return ""
