"""What several tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import hypothesis
import pytest

from tests.hub import make_hub_cache
from tests.integration.servers import Servers

# A shell that starts a job in the background has it ignore Ctrl-C, which some tests send themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:  # the process that only hands out tests imports neither it nor the package
    from llama_index.core import Document

ROOT = Path(__file__).parent.parent
DATA = ROOT / "llama_pack_densex" / "samples"
# Before huggingface_hub is imported, which reads it then: what the user has downloaded is no test's business.
os.environ["HF_HUB_CACHE"] = str(make_hub_cache(ROOT / ".pytest_cache" / "hub"))


@pytest.fixture(autouse=True, scope="session")
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have clients trust one authority: to read all of them takes 20 ms for each client, and no test needs
    any."""
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("certificate") / "one.pem"
    file.write_text(certifi.contents().partition(end)[0] + end, encoding="utf-8")
    os.environ["SSL_CERT_FILE"] = str(file)


# What `make test` leaves to `make test-all`: node ids, and those of them that are run each time all the same.
SLOW: dict[str, tuple[str, ...]] = {
    "tests/answering/test_conversations.py::*all four ways]": (),
    "tests/evaluation/test_compare.py::test_every_strategy_runs*[[]en]": (),
    "tests/evaluation/test_proposition_scores.py::test_*bert_score*": (),
    "tests/evaluation/test_proposition_scores.py::test_nothing_is_imported*": (),
    "tests/evaluation/test_proposition_scores.py::test_the_command*": (),
    "tests/evaluation/test_report_browser.py::*": (),
    "tests/evaluation/test_trulens.py::test_importing*": (),
    "tests/ingestion/test_estimate.py::test_a_sample_corrects*": (),
    "tests/ingestion/test_estimate.py::test_a_sample_shows*": (),
    "tests/ingestion/test_pipeline_workers.py::*": (),
    "tests/ingestion/test_progress.py::test_a*terminal*": ("*live_line_below*",),
    "tests/ingestion/test_progress.py::test_a_notebook*": (),
    "tests/ingestion/test_progress.py::test_what_is_printed_into*": (),
    "tests/ingestion/test_ray.py::*": (),
    "tests/ingestion/test_report.py::test_killed*": (),
    "tests/ingestion/test_report.py::test_memory*": (),
    "tests/integration/stores/test_any_order.py::*": (),
    "tests/integration/stores/test_changes.py::*[[]embedded-folder-recursive*": (),
    "tests/integration/stores/test_changes.py::test_nothing_is_left*-tides[]]": ("*[[]embedded-folder*",),
    "tests/integration/stores/test_reopening.py::test_another_process*": (),
    "tests/integration/stores/test_sharing.py::*[[]embedded-folder-auto_merging]": (),
    "tests/llm/test_limits.py::test_a_limit_that_falls*[[]alone]": (),
    "tests/llm/test_limits.py::test_a_rate_that_was_not_told*[[]600-*": ("*-window-]", "*-window-alone]"),
    "tests/llm/test_limits.py::test_a_time_of_refusals*": (),
    "tests/llm/test_limits.py::test_refusals_by_chance*[[]4000-*": ("*-0.1-1.0-alone]",),
    "tests/llm/test_reply_cache*::test_*damage*": (),
    "tests/llm/test_reply_cache*::test_*kill*": (),
    "tests/llm/test_reply_cache_processes.py::*": (),
    "tests/node_parsers/test_headings.py::test_the_time*": (),
    "tests/node_parsers/test_stream.py::test_few_documents*": (),
    "tests/propositionizers/test_llm.py::test_a_model_capped_at_750*[[]8-*": ("*miso.md]",),
    "tests/propositionizers/test_llm.py::test_requests_for_a_passage*": (),
    "tests/propositionizers/test_llm_budget.py::test_the_usage_is_the_sum*": ("*[[]sync]",),
    "tests/propositionizers/test_llm_cache.py::test_*kill*": (),
    "tests/propositionizers/test_llm_cache.py::test_several_that_begin*": ("*[[]sync]",),
    "tests/propositionizers/test_llm_cache.py::test_what_one_process*": (),
    "tests/propositionizers/test_llm_failures.py::test_a_passing_error*[[]429]": (),
    "tests/propositionizers/test_llm_limits.py::test_*_a_minute_are_kept*[[]1-10]": (),
    "tests/propositionizers/test_llm_limits.py::test_a_server_that_says_when*[[]date_header*": ("*-sync]",),
    "tests/propositionizers/test_llm_limits.py::test_calls_that_are_over*": (),
    "tests/propositionizers/test_llm_limits.py::test_refusals_at_random*": ("*[[]sync]",),
    "tests/propositionizers/test_llm_structured.py::test_a_server_that_refuses*[[]True-*": ("*-OpenAI]",),
    "tests/text/test_segmentation.py::test_time_is_linear*": (),
    "tests/propositionizers/test_seq2seq.py::test_a_batch_of_sixteen*": (),
    "tests/propositionizers/test_stream.py::test_an_identical_passage*long_after": (),
    "tests/retrieval/test_filters.py::test_a_filtered_hybrid_search*": (),
    "tests/retrieval/test_filters.py::test_a_filtered_ranking*": ("*[[]lexical-501]", "*[[]dense-3]"),
    "tests/retrieval/test_hybrid.py::test_a_very_long_question*": ("*[[]hybrid]",),
    "tests/retrieval/test_hybrid.py::test_passages_that_come_one_by_one*": ("*granularity1]",),
    "tests/retrieval/test_retrievers.py::test_no_node_is*": ("*[[]3-*",),
    "tests/serving/test_app.py::test_densex_serve_serves*[[]2]": (),
    "tests/stores/foreign/test_chroma.py::TestChromaInAFolder::*": ("*come_back*", "*filter*"),
    "tests/stores/foreign/test_chroma.py::TestChromaInMemory::*[[]ip*": ("*cosines_best_first*",),
    "tests/stores/foreign/test_chroma.py::TestChromaInMemory::*[[]l2*": ("*cosines_best_first*",),
    "tests/stores/foreign/test_chroma.py::TestChromaOnAServer::*": ("*come_back*", "*filter*"),
    "tests/stores/foreign/test_chroma.py::test_more_rows*": (),
    "tests/stores/foreign/test_faiss.py::test_*kill*": (),
    "tests/stores/foreign/test_packs.py::*[[]chroma*": ("*half_written*", "*writes_later*"),
    "tests/stores/foreign/test_packs.py::test_two_writers_to_a_faiss_folder*": (),
    "tests/stores/foreign/test_postgres.py::TestPostgres::*[[]json[]-]*": ("*come_back*", "*filter*"),
    "tests/stores/test_forks.py::*": (),
    "tests/stores/test_urls.py::test_a_chroma_folder_that_a_kill*": (),
    "tests/test_any_order.py::*": ("*[[]folder-1]",),
    "tests/test_bare_install.py::*": (),
    "tests/test_benchmarks_stores.py::test_it_measures*": (),
    "tests/test_checking.py::test_a_new_index_has_nothing*": (),
    "tests/test_checking.py::test_a_system_*": ("*[[]recursive]",),
    "tests/test_cli.py::test_a_pipe_for_ascii*": (),
    "tests/test_cli.py::test_a_reader_that_leaves_early*": (),
    "tests/test_cli.py::test_json_is_all_on_stdout*": (),
    "tests/test_cli.py::test_what_may_not_be_read*": (),
    "tests/test_cli_chat.py::test_without_any_input*": (),
    "tests/test_cli_compare.py::test_a_table_and_three*": ("*[[]ja]",),
    "tests/test_cli_compare.py::test_it_fits*": ("*[[]ja]",),
    "tests/test_cli_compare.py::test_the_samples_questions*": (),
    "tests/test_cli_estimate.py::test_what_is_in_a_store*": (),
    "tests/test_cli_ingestion.py::test_the_command_of_a_user*": (),
    "tests/test_demo.py::test_it_answers*": ("*[[]recursive-*",),
    "tests/test_ingestion.py::test_a_document_that_fails*": ("*[[]3-*",),
    "tests/test_ingestion.py::test_after_a_budget*": ("*limit1]",),
    "tests/test_ingestion.py::test_few_of_many*": (),
    "tests/test_ingestion.py::test_of_a_file*": ("*[[]1]",),
    "tests/test_ingestion_resume.py::*": (),
    "tests/test_installation.py::*": (),
    "tests/test_kills*.py::*": (),
    "tests/test_notebooks.py::test_a_question_is_answered*": (),
    "tests/test_pack.py::test_it_works_after_nest_asyncio*": (),
    "tests/test_pack.py::test_the_embeddings_of_a_long_document*": (),
    "tests/test_pack_search.py::test_every_choice_of_units*[[]auto_merging-*-lexical]": (),
    "tests/test_pack_search.py::test_questions_beside*": ("*[[]folder]",),
    "tests/test_pages.py::test_the_code_of_a_page*": ("*README*",),
    "tests/test_persistence.py::test_*kill*": (),
    "tests/test_persistence.py::test_a_damaged_file*": ("*[[]truncated]",),
    "tests/test_reading.py::test_what_would_unpack*": ("*document.xml]",),
    "tests/test_stand_in_llm.py::test_faults_come*": (),
}

STORES = ("chroma", "embedded", "faiss", "milvus", "postgres", "qdrant")

# Where several processes run the tests, one runs those of a file, and these together: they share what is
# dear.
TOGETHER = {
    **{f"tests/integration/stores/*[[]{store}*": store for store in STORES},
    "tests/evaluation/test_proposition_scores.py::test_nothing*": "forks",
    "tests/evaluation/test_proposition_scores.py::*": "torch",
    "tests/evaluation/test_trulens.py::*": "forks",
    "tests/ingestion/test_ray.py::*": "ray",
    "tests/node_parsers/test_ids.py::*": "forks",
    "tests/node_parsers/test_pipeline.py::*": "forks",
    "tests/node_parsers/test_topics.py::*": "torch",
    "tests/propositionizers/test_llm_pickling.py::*": "forks",
    "tests/propositionizers/test_seq2seq.py::*": "torch",
    "tests/retrieval/test_reranking.py::*": "torch",
    "tests/serving/test_page_browser.py::*": "page",
    "tests/stores/foreign/test_chroma*::*": "chroma",
    "tests/stores/foreign/test_docstore.py::*": "postgres",
    "tests/stores/foreign/test_postgres.py::*": "postgres",
    "tests/stores/test_lock.py::*": "forks",
    "tests/stores/test_urls.py::*": "postgres",
    "tests/test_checking.py::*": "forks",
    "tests/test_cli.py::test_a_faiss_folder*": "torch",
    "tests/test_cli.py::test_deleting_says*": "torch",
    "tests/test_cli_inside.py::*": "torch",
    "tests/test_ingestion.py::*": "ingestion",
    "tests/test_ingestion_resume.py::*": "ingestion",
    "tests/test_installation.py::*": "installation",
    "tests/test_model_names.py::*": "torch",
    "tests/test_models.py::*": "torch",
    "tests/test_pages.py::test_the_code_of_a_page*": "torch",
    "tests/test_persistence.py::*": "forks",
    "tests/test_retrievers_by_name.py::*": "torch",
}

# No test depends on luck: the same examples each time. HYPOTHESIS_PROFILE=nightly tries more of them.
hypothesis.settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True)
hypothesis.settings.register_profile("nightly", max_examples=300, deadline=None, derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread that have slow tests only, where these are not wanted: Ray takes a second to
    import."""
    file = f"tests/{collection_path.relative_to(Path(__file__).parent).as_posix()}"
    patterns = (pattern for pattern, kept in SLOW.items() if pattern.endswith(".py::*") and not kept)
    if config.option.markexpr != "not slow":
        return None
    return any(fnmatchcase(f"{file}::", pattern) for pattern in patterns) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while so much comes that stays, nor in that ever after, and seldom in the rest."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow."""
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process whole groups; the marks of pytest-xdist 3.8 for that do nothing with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


def is_slow(test: str) -> bool:
    """Whether a test is named among the slow ones."""
    return any(
        fnmatchcase(test, pattern) and not any(fnmatchcase(test, each) for each in kept)
        for pattern, kept in SLOW.items()
    )


def together(test: str) -> str:
    """What is the same for tests that one process is to run; those that take long may be run by any."""
    for pattern, group in TOGETHER.items():
        if fnmatchcase(test, pattern):
            return group
    return test if is_slow(test) else test.partition("::")[0]


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no hub, and Settings as a new process has them; whatever a test sets is gone after it."""
    from llama_index.core import Settings

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("_llm", "_embed_model", "_callback_manager", "_node_parser", "_transformations"):
        monkeypatch.setattr(Settings, name, None)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Real servers of stores, each started when it is first needed."""
    running = Servers()
    yield running
    running.stop()


@pytest.fixture
def documents() -> list[Document]:
    """Three short documents, two in English and one in Japanese."""
    from llama_index.core import Document

    return [
        Document(
            id_="tides",
            text=(
                "# Tides\n\n## Cause\n\nThe Moon pulls the ocean towards itself. Its pull raises two "
                "bulges.\n\n"
                "## Records\n\nThe Bay of Fundy has the highest tides. They reach 16 metres there."
            ),
            metadata={"topic": "sea", "tags": ["moon", "water"]},
        ),
        Document(
            id_="bridges",
            text=(
                "The Akashi Bridge opened in 1998. Its main span is 1,991 metres long. It crosses a busy "
                "strait."
            ),
            metadata={"topic": "building"},
        ),
        Document(
            id_="鉄道",
            text=(
                "新幹線は1964年に開業した。最初の路線は東京と新大阪を結んだ。「夢の超特急」と呼ばれ、"
                "時速210キロで走った。"
            ),
            metadata={"topic": "鉄道"},
        ),
    ]
