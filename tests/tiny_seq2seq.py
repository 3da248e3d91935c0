"""A small T5 made here: its tokenizer is trained on a few passages, and its weights learn these by heart in
seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LEARNED: Mapping[str, Sequence[str]] = {
    "Green tea is steamed, and black tea is oxidised.": [
        "Green tea is steamed.",
        "Black tea is oxidised.",
    ],
    "It keeps its colour.": ["Green tea keeps its colour."],
    "Kombu, a kelp, grows in Hokkaido.": ["Kombu is a kelp.", "Kombu grows in Hokkaido."],
    "Its harvest begins in July.": ["The harvest of kombu begins in July."],
    "The tower leans at four degrees.": ["The tower leans at four degrees."],
    "Miso, which is salty, is made of soybeans.": ["Miso is salty.", "Miso is made of soybeans."],
}
"""Sentences and the propositions that the model makes of them, and of two that follow each other."""
PAIRS = (0, 2)  # the first sentences of passages of two that it knows


def learned_passages() -> dict[str, list[str]]:
    """Passages of one and two sentences, with their propositions."""
    texts = list(LEARNED)
    passages = {text: list(LEARNED[text]) for text in texts}
    for first in PAIRS:
        one, two = texts[first : first + 2]
        passages[f"{one} {two}"] = [*LEARNED[one], *LEARNED[two]]
    return passages


def prompt(text: str, title: str = "Food", section: str = "") -> str:
    return f"Title: {title}. Section: {section}. Content: {text}"


def make_tokenizer(texts: Sequence[str]) -> Any:
    """A T5-like tokenizer of the words of some texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=512,
    )


def make_model(words: int, seed: int = 0) -> Any:
    """A T5 with random weights."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=words, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config)


def save_propositionizer(folder: Path) -> Path:
    """Have a T5 learn `learned_passages` by heart, and save it as a model that takes no longer ones."""
    import torch

    passages = learned_passages()
    asked = [prompt(text) for text in passages]
    wanted = [json.dumps(texts) for texts in passages.values()]
    tokenizer = make_tokenizer([*asked, *wanted])
    model = make_model(len(tokenizer))
    given, labels = (
        tokenizer(texts, padding=True, return_tensors="pt")["input_ids"]
        for texts in (asked, wanted)
    )
    is_asked, is_wanted = given != tokenizer.pad_token_id, labels != tokenizer.pad_token_id
    tokenizer.model_max_length = given.shape[1]
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(2_000):
        logits = model(input_ids=given, attention_mask=is_asked.long(), labels=labels).logits[
            is_wanted
        ]
        loss = torch.nn.functional.cross_entropy(logits, labels[is_wanted], reduction="none")
        if loss.max().item() < 0.2:  # each token is sure, whatever rounding does
            break
        optimizer.zero_grad()
        loss.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss.max().item() < 0.2, "the model has not learned its passages by heart"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
