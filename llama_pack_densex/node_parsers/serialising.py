"""Node parsers as dictionaries and pickles: without keys, and whole or not at all."""

from __future__ import annotations

import multiprocessing
import pickle
import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.loading import all_node_parsers
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.utils import get_tokenizer

from llama_pack_densex.node_parsers.sections import SectionNodeParser, WholeDocumentNodeParser
from llama_pack_densex.propositionizers.base import Propositionizer
from llama_pack_densex.propositionizers.llm import LLMPropositionizer
from llama_pack_densex.propositionizers.recorded import RecordedPropositionizer
from llama_pack_densex.propositionizers.sentences import SentencePropositionizer

_SECRET = re.compile(r"(^|_)(api_?key|key|secret|password|token|credentials?|authorization)$", re.IGNORECASE)

_PROPOSITIONIZERS: dict[str, type[Propositionizer]] = {
    kind.class_name(): kind for kind in (LLMPropositionizer, RecordedPropositionizer, SentencePropositionizer)
}
_PARSERS: dict[str, type[NodeParser]] = {
    **all_node_parsers,
    **{kind.class_name(): kind for kind in (SectionNodeParser, WholeDocumentNodeParser)},
}


def parser_to_dict(parser: NodeParser) -> dict[str, Any]:
    """A base parser's dictionary without the keys that a model in it may hold."""
    without: dict[str, Any] = _without_secrets(parser.to_dict())
    return without


def load_parser(data: Any) -> Any:
    """Make a base parser of its dictionary; anything else is passed on.

    Raises:
        ValueError: Its class is not known.
    """
    if not isinstance(data, dict):
        return data
    data = {key: value for key, value in data.items() if key != "id_func"}  # a function is kept by name only
    return _known(_PARSERS, data).from_dict(data)


def load_propositionizer(data: Any) -> Any:
    """Make a propositionizer of its dictionary; anything else is passed on.

    Raises:
        ValueError: Its class is not known, or its LLM cannot be made here.
    """
    return _known(_PROPOSITIONIZERS, data).from_dict(data) if isinstance(data, dict) else data


def pickle_fields(parser: NodeParser) -> bytes:
    """Pickle a proposition node parser's fields.

    Core's own pickling leaves out what cannot be pickled. Here that is an error.

    Raises:
        TypeError: A part holds a key, which a pickle must not.
    """
    fields = {name: getattr(parser, name) for name in type(parser).model_fields if name != "callback_manager"}
    for name, value in fields.items():
        parts = value if isinstance(value, list) else [value]
        secrets = [found for part in parts if isinstance(part, NodeParser) for found in _secrets(part.to_dict(), name)]
        if secrets:
            raise TypeError(
                f"the parser cannot be pickled with the key in {secrets[0]}: make its {name} where it is used"
            )
    return pickle.dumps(fields)


class UnusableParser(TransformComponent):
    """What a parser becomes in a worker of `multiprocessing` that cannot make it: it says why when it is called.

    An error while a task is unpickled ends the worker, and a `multiprocessing.Pool` then waits for ever.

    Args:
        reason: What was wrong.
    """

    reason: str

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        """Raise a ValueError that says what was wrong."""
        raise ValueError(self.reason)


def unpickle_fields(kind: type[NodeParser], fields: bytes) -> TransformComponent:
    """Make a proposition node parser of its pickled fields, or in a worker of `multiprocessing` an `UnusableParser`."""
    get_tokenizer()  # points tiktoken to the files that come with core; unpickling a splitter would download them
    try:
        return kind(**pickle.loads(fields))
    except Exception as error:
        if multiprocessing.parent_process() is None:
            raise
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        return UnusableParser(reason=f"A worker could not make the node parser. {said}")


def _known(kinds: dict[str, Any], data: dict[str, Any]) -> Any:
    name = data.get("class_name")
    if name not in kinds:
        raise ValueError(f"cannot make a {name!r} from its dictionary; known are {', '.join(sorted(kinds))}")
    return kinds[name]


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_secrets(v) for k, v in value.items() if not (_SECRET.search(str(k)) and v)}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def _secrets(value: Any, path: str) -> list[str]:
    if isinstance(value, list):
        return [found for i, item in enumerate(value) for found in _secrets(item, f"{path}[{i}]")]
    if not isinstance(value, dict):
        return []
    found = [
        f"{path}.{key}" for key, item in value.items() if _SECRET.search(str(key)) and item and isinstance(item, str)
    ]
    return found + [secret for key, item in value.items() for secret in _secrets(item, f"{path}.{key}")]
