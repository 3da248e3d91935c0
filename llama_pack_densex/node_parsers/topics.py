"""A base parser whose passages end where the topic changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import inf
from typing import Annotated, Any

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PlainSerializer, model_validator
from llama_index.core.node_parser import TextSplitter
from typing_extensions import Self

from llama_pack_densex.llm.claims import name_place, refuse_field, unnamed_place
from llama_pack_densex.llm.endpoint import embed_texts
from llama_pack_densex.models import E5, NONE, RETRIEVERS, embed_model_identity, resolve_embed_model
from llama_pack_densex.node_parsers.passages import PassageNodeParser, length_of, path_to_end
from llama_pack_densex.text.segments import segment


def _name_of(model: BaseEmbedding | str) -> str:
    if isinstance(model, str):
        return model
    return embed_model_identity(model)


class TopicNodeParser(TextSplitter):
    """Cuts documents between sentences where their neighbours are least alike, into passages of bounded size.

    The mean embeddings of the two sentences before a gap and of the two after it are compared, as TextTiling
    does with words (Hearst, 1997). Of all ways to cut the text into passages that are not too long, the one
    with the least total similarity across its cuts is chosen. LlamaIndex's `SemanticSplitterNodeParser`, in
    contrast, cuts at a percentile of distances, so that passages have any size, and it does not recognise
    Japanese sentence ends.

    Args:
        embed_model: The model that embeds sentences: a LlamaIndex embedding model, or a name that
            `DenseXRetrievalPack` takes ("minilm"). To be made from a dictionary, a parser needs a name.
        chunk_size: The most tokens in a passage; only a single sentence that is longer is cut itself.

    Raises:
        ValueError: (on parsing) There is no such embedding model.

    Example:
        >>> from llama_index.core import Document, MockEmbedding
        >>> from llama_pack_densex.node_parsers.topics import TopicNodeParser
        >>> parser = TopicNodeParser(embed_model=MockEmbedding(8), chunk_size=16)  # or a name, as "minilm"
        >>> text = "Salmon swim up the river to spawn. Tea is grown in Uji. The leaves are steamed."
        >>> parser.split_text(text)
        ['Salmon swim up the river to spawn.', 'Tea is grown in Uji. The leaves are steamed.']
    """

    embed_model: Annotated[BaseEmbedding | str, PlainSerializer(_name_of)] = Field(
        repr=False, description="The model that embeds sentences, or its name."
    )
    chunk_size: int = Field(default=256, gt=0, description="The most tokens in a passage.")

    @classmethod
    def class_name(cls) -> str:
        return "TopicNodeParser"

    @model_validator(mode="after")
    def _name_place(self) -> Self:
        name_place(_place_of(_name_of(self.embed_model)))
        return self

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """Make a parser from what `to_dict` returned; `kwargs` override.

        Raises:
            ValueError: The model's address or folder is named by the dictionary alone (see `llm.claims`).
        """
        refuse_field(data, kwargs, "embed_model", "an embedding model", _place_of)
        return super().from_dict(data, **kwargs)

    def split_text(self, text: str) -> list[str]:
        """Split a text into passages, without the white space around them."""
        segments = segment(text)
        places = [*(part.start for part in segments), len(text)]
        sizes = [length_of(text[start:end]) for start, end in pairwise(places)]
        cuts = [0, len(segments)]
        if sum(sizes) > self.chunk_size:
            costs = similarities(self._embedded([part.text_in(text) for part in segments]))
            for gap, part in enumerate(segments[:-1]):
                if part.kind in ("heading", "columns", "group"):
                    costs[gap] = inf  # these stay with the text below them
            cuts = best_cuts(costs, sizes, self.chunk_size)
        passages = []
        for begin, end in pairwise(cuts):
            passage = text[places[begin] : places[end]].rstrip()
            if sum(sizes[begin:end]) > self.chunk_size:
                passages += PassageNodeParser(chunk_size=self.chunk_size).split_text(passage)
            elif passage:
                passages.append(passage)
        return passages

    def _embedded(self, sentences: Sequence[str]) -> Any:
        model = self.embed_model
        if isinstance(model, str):
            model = _named(model)
        return np.asarray(embed_texts(model, sentences), np.float32)


def _place_of(model: str) -> str:
    return unnamed_place(model, (NONE, E5, *RETRIEVERS))


# not an attribute of the parser, with which the model and its key would be pickled
@lru_cache(maxsize=4)
def _named(name: str) -> BaseEmbedding:
    model, _ = resolve_embed_model(name)
    if not model:
        raise ValueError("TopicNodeParser needs an embedding model, and embed_model is none")
    return model


def similarities(embeddings: Any) -> list[float]:
    """Return the cosines across gaps between sentences, of the mean embeddings of two before and two after.

    Args:
        embeddings: The sentences' embeddings, an array of shape (sentences, dimensions).

    Returns:
        One cosine for each gap, so one fewer than there are sentences.
    """
    padded = np.pad(of_length_one(embeddings), ((1, 1), (0, 0)))
    # the mean directions of neighbours; the first and last ones are single sentences
    pairs = of_length_one(padded[:-1] + padded[1:])
    across: list[float] = np.einsum("ij,ij->i", pairs[:-2], pairs[2:]).tolist()
    return across


def of_length_one(vectors: Any) -> Any:
    """Unit-normalise vectors, an array of shape (vectors, dimensions); zero vectors stay zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def best_cuts(across: Sequence[float], sizes: Sequence[int], most: int) -> list[int]:
    """Find the cuts between sentences with the least total similarity across them.

    Args:
        across: The similarity across each gap.
        sizes: The number of tokens of each sentence.
        most: The most tokens in a passage; a longer sentence becomes a passage by itself.

    Returns:
        The indices of the sentences to cut before, in order, with 0 and the number of sentences.
    """
    ends = [0, *accumulate(sizes)]
    costs = [0.0]
    begins = [0]
    first = 0  # the earliest place where a passage that ends here may begin
    for place in range(1, len(ends)):
        while ends[place] - ends[first] > most and first < place - 1:
            first += 1
        begins.append(min(range(first, place), key=costs.__getitem__))
        cost = costs[begins[place]]
        if place < len(sizes):
            cost += max(across[place - 1], 0.0)
        costs.append(cost)
    return path_to_end(begins)
