"""Propositions by the Propositionizer of Dense X Retrieval: a Flan-T5 for English that runs locally."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.utils import infer_torch_device, iter_batch
from typing_extensions import Self

from llama_pack_densex.llm.claims import name_place, refuse_field, unnamed_place
from llama_pack_densex.llm.names import HUGGINGFACE_ADVICE
from llama_pack_densex.llm.usage import Finish
from llama_pack_densex.propositionizers.base import (
    DelegatingPropositionizer,
    Passage,
    Propositionizer,
    PropositionizerError,
    PropositionSet,
)
from llama_pack_densex.propositionizers.checks import checked
from llama_pack_densex.propositionizers.prompts import split_in_two
from llama_pack_densex.propositionizers.replies import fall_back, join_parts, judge
from llama_pack_densex.text.language import LANGUAGE_NAMES, is_english
from llama_pack_densex.text.links import readable_text
from llama_pack_densex.text.tokens import has_letters, strip_surrogates

PROPOSITIONIZER = "chentong00/propositionizer-wiki-flan-t5-large"
"""The weights that the paper's authors published: 3 GB."""
_LONGEST_INPUT = (
    512  # tokens: Flan-T5 was trained with this length; a tokenizer may have a lower limit
)
_LONGEST_HEADING = 150  # characters of the title, and of the section; the rest is for the passage
_FIRST_PASSAGES = 20  # if sentences stand in for all of the first ones, the model is unsuitable
_SAMPLE = 1024  # values of each parameter that are hashed to identify a model


class Seq2SeqPropositionizer(DelegatingPropositionizer):
    """Makes propositions on this machine, by the paper's Propositionizer or another model of its kind.

    The Propositionizer is a Flan-T5-large that was trained on 42,857 replies of GPT-4 (Dense X Retrieval,
    section 3 and appendix B). It needs no key and no server, and reads English only. A passage is split at a
    sentence boundary if it is too long for the model, or if the reply is cut off or is not a list. A sentence
    that cannot be split further stands in for its propositions: the status is "fallback", with the reason.
    Decoding is greedy, so the same passage always becomes the same propositions, whatever else is in its
    batch.

    A pickled one holds no weights: they are loaded again where it is unpickled.

    Args:
        model: A name on the Hugging Face Hub, or the folder of a model; any encoder-decoder that takes
            "Title: ... Section: ... Content: ..." and answers with a JSON list.
        otherwise: Makes the propositions of passages in languages other than English; without it, such a
            passage is an error.
        batch_size: How many passages of similar length are processed together; more of them need more memory.
        device: Such as "cuda:1" or "cpu". Without it, the first of CUDA, Apple's MPS and the CPU that is
            available.
        max_new_tokens: The longest reply, in tokens.

    Raises:
        ImportError: transformers or torch is not installed; the message names the extra.
        ValueError: There is no such model, or it is of another kind; or (on use) a passage is not in English
            and there is no `otherwise`.
        PropositionizerError: (on use) None of the first passages yielded propositions.

    Example:
        >>> from llama_pack_densex import Passage, Seq2SeqPropositionizer, SentencePropositionizer
        >>> # not run: downloads 3 GB of weights
        >>> propositionizer = Seq2SeqPropositionizer(  # doctest: +SKIP
        ...     otherwise=SentencePropositionizer()  # for passages that are not in English
        ... )
        >>> passage = Passage("Miso, a seasoning, is salty.")
        >>> propositionizer.propositionize([passage])[0].texts  # doctest: +SKIP
        ('Miso is a seasoning.', 'Miso is salty.')
    """

    model: str = Field(description="A name on the Hugging Face Hub, or the folder of a model.")
    batch_size: int = Field(ge=1, description="Passages that are processed together.")
    device: str | None = Field(description="Where the model runs.")
    max_new_tokens: int = Field(ge=1, description="The longest reply, in tokens.")
    _loaded: _Seq2SeqModel
    _is_sound: bool = False  # whether a passage yielded propositions
    _fallbacks: int = 0  # before the first one that did

    def __init__(
        self,
        model: str | Path = PROPOSITIONIZER,
        *,
        otherwise: Propositionizer | None = None,
        batch_size: int = 16,
        device: str | None = None,
        max_new_tokens: int = 512,
    ) -> None:
        settings = {"batch_size": batch_size, "device": device, "max_new_tokens": max_new_tokens}
        super().__init__(otherwise=otherwise, **{"model": str(model), **settings})
        self._loaded = _Seq2SeqModel(self.model, device)
        name_place(self.model)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """Make a propositionizer from what `to_dict` returned; `kwargs` override.

        Raises:
            ValueError: The model's folder is named by the dictionary alone (see `llm.claims`).
        """
        refuse_field(data, kwargs, "model", "a model", unnamed_place)
        return super().from_dict(data, **kwargs)

    @classmethod
    def class_name(cls) -> str:
        return "Seq2SeqPropositionizer"

    def takes(self, passage: Passage) -> bool:
        return is_english(passage.text, f"{passage.title}\n{passage.section}")

    def _refusal(self, refused: Sequence[Passage], count: int) -> str:
        languages = Counter(passage.language for passage in refused)
        counts = (
            f"{LANGUAGE_NAMES[language]} ({times:,})" for language, times in languages.most_common()
        )
        return (
            f"{len(refused):,} of {count:,} passages are not in English, the only language that {self.model} "
            f"knows: {', '.join(counts)}. Pass otherwise=..., another propositionizer for these (at the "
            "command line, --llm names a model for them)."
        )

    def _make(self, passages: Sequence[Passage]) -> list[PropositionSet]:
        sets = [PropositionSet(passage.sentences) for passage in passages]
        numbers = [number for number, passage in enumerate(passages) if has_letters(passage.text)]
        parts = self._make_parts([passages[number] for number in numbers])
        for number, own_parts in zip(numbers, parts, strict=True):
            sets[number] = checked(passages[number], join_parts(own_parts))
        self._is_sound = self._is_sound or any(
            part.status == "ok" for part in chain.from_iterable(parts)
        )
        if not self._is_sound:
            self._check_fallbacks(sets)
        return sets

    def _check_fallbacks(self, sets: Sequence[PropositionSet]) -> None:
        reasons = [result.reason for result in sets if result.status == "fallback"]
        self._fallbacks += len(reasons)
        if reasons and self._fallbacks >= _FIRST_PASSAGES:
            raise PropositionizerError(
                f"None of the first {self._fallbacks} passages yielded propositions; the last one: "
                f"{reasons[-1]}. Was {self.model} trained to make propositions?"
            )

    def _make_parts(self, passages: Sequence[Passage]) -> list[list[PropositionSet]]:
        """Make the sets of each passage: one for the whole, or those of its halves, split recursively."""
        if not passages:
            return []
        replies = self._loaded.replies(
            list(map(_prompt, passages)), self.batch_size, self.max_new_tokens
        )
        parts = []
        halves = {}
        for number, (passage, reply) in enumerate(zip(passages, replies, strict=True)):
            reading = judge(passage, *reply)
            if reading.problem is None:
                parts.append([PropositionSet(reading.texts)])
            elif split := split_in_two(passage):
                halves[number] = split
                parts.append([])
            else:
                parts.append([fall_back(passage, reading.reason)])
        parts_of_halves = iter(self._make_parts([*chain.from_iterable(halves.values())]))
        for number in halves:
            parts[number] = next(parts_of_halves) + next(parts_of_halves)
        return parts

    def fingerprint_data(self) -> dict[str, Any]:
        return {
            "weights": self._loaded.digest,
            "max_new_tokens": self.max_new_tokens,
            **super().fingerprint_data(),
        }


def _prompt(passage: Passage) -> str:
    """Write a passage in the input format that the Propositionizer was trained with."""
    title = passage.title[:_LONGEST_HEADING]
    section = passage.section[:_LONGEST_HEADING]
    content = readable_text(f"{passage.context}{passage.text}")
    return strip_surrogates(f"Title: {title}. Section: {section}. Content: {content}")


class _Seq2SeqModel:
    """A model with its tokenizer, and a digest that identifies it.

    Args:
        name: A name on the Hub, or a folder.
        device: As for `Seq2SeqPropositionizer`.
    """

    def __init__(self, name: str, device: str | None) -> None:
        try:
            import torch  # noqa: F401  # imported here, since the error of transformers is unhelpful
            from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        except ImportError as error:
            message = f"Seq2SeqPropositionizer needs transformers and torch: {HUGGINGFACE_ADVICE}"
            raise ImportError(message) from error
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForSeq2SeqLM.from_pretrained(name).float().eval()
        except (OSError, ValueError, ImportError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(
                f"{name!r} cannot be loaded as an encoder-decoder model: {reason} "
                f"Pass the folder of one, or download it once, with: hf download {PROPOSITIONIZER}"
            ) from error
        self.digest = _digest_of(model)
        self._device = device or infer_torch_device()
        self._model = model.to(self._device)
        self._longest = min(_LONGEST_INPUT, self._tokenizer.model_max_length)
        # a tokenizer is not thread-safe, and two threads would not make the model faster
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Seq2SeqModel:
        return self  # nothing in it is ever changed

    def replies(
        self,
        prompts: Sequence[str],
        batch_size: int,
        max_new_tokens: int,
    ) -> list[tuple[str, Finish]]:
        """Return the greedy replies to prompts, in their order, and why each ended.

        Args:
            prompts: The prompts. Those of similar length share a batch, the longest first, so that a lack of
                memory shows immediately. A prompt that is too long for the model counts as cut off.
            batch_size: How many prompts are processed together.
            max_new_tokens: The longest reply, in tokens.
        """
        import torch

        replies: list[tuple[str, Finish]] = [("", "length")] * len(prompts)
        with self._lock, torch.inference_mode():
            ids = self._tokenizer(list(prompts), truncation=True, max_length=self._longest + 1)[
                "input_ids"
            ]
            fitting = [i for i, tokens in enumerate(ids) if len(tokens) <= self._longest]
            fitting.sort(key=lambda i: -len(ids[i]))
            for places in iter_batch(fitting, batch_size):
                batch = self._tokenizer(
                    [prompts[i] for i in places], padding=True, return_tensors="pt"
                )
                output = self._model.generate(
                    input_ids=batch["input_ids"].to(self._device),
                    attention_mask=batch["attention_mask"].to(self._device),
                    max_new_tokens=max_new_tokens,
                    do_sample=False,
                    num_beams=1,
                )
                texts = self._tokenizer.batch_decode(output, skip_special_tokens=True)
                for i, row, text in zip(places, output.tolist(), texts, strict=True):
                    is_complete = self._tokenizer.eos_token_id in row
                    replies[i] = text, "stop" if is_complete else "length"
        return replies


def _digest_of(model: Any) -> str:
    """Return a hash of values sampled from all of a model's weights."""
    digest = hashlib.sha256()
    for name, weights in sorted(dict(model.named_parameters()).items()):
        values = weights.detach().flatten()
        digest.update(f"{name} {tuple(weights.shape)}".encode())
        digest.update(values[:: max(1, len(values) // _SAMPLE)].numpy().tobytes())
    return digest.hexdigest()[:16]
