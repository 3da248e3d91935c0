"""Measures how many passages per second Seq2SeqPropositionizer processes, by batch size.

    python benchmarks/seq2seq.py --shape small --device cpu

The model has the shape of a Flan-T5 and random weights, so nothing is downloaded: it writes nonsense, in the
time that real propositions of the same length take. Each passage is one sentence of 100 words, and each reply
is 160 tokens long.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from llama_pack_densex import Passage, Seq2SeqPropositionizer

SHAPES = {
    "small": {"d_model": 512, "d_ff": 1024, "d_kv": 64, "num_layers": 8, "num_heads": 6},
    "large": {"d_model": 1024, "d_ff": 2816, "d_kv": 64, "num_layers": 24, "num_heads": 16},
}
WORDS, REPLY = 100, 160


def save_model(folder: Path, shape: str) -> None:
    """Save a Flan-T5 with random weights, and a tokenizer for "word0", "word1", ..."""
    words = {
        "<pad>": 0,
        "</s>": 1,
        "<unk>": 2,
        **{f"word{number}": number + 3 for number in range(1_000)},
    }
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, **special
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=32_128, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
        decoder_start_token_id=0, **SHAPES[shape],
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shape", choices=SHAPES, default="small", help="the Flan-T5 whose shape is used"
    )
    parser.add_argument("--device", help="as for Seq2SeqPropositionizer")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--passages", type=int, default=16, choices=range(1, 20), metavar="1-19")
    arguments = parser.parse_args()
    passages = [
        Passage(" ".join(f"word{(number * WORDS + word) % 1_000}" for word in range(WORDS)))
        for number in range(arguments.passages)
    ]
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), arguments.shape)
        for batch_size in arguments.batch_sizes:
            propositionizer = Seq2SeqPropositionizer(
                folder, batch_size=batch_size, device=arguments.device, max_new_tokens=REPLY
            )
            propositionizer.propositionize(passages[:1])  # one-time work is not measured
            start, used = time.perf_counter(), time.process_time()
            propositionizer.propositionize(passages)
            seconds, used = time.perf_counter() - start, time.process_time() - used
            print(
                f"batches of {batch_size:3}: {len(passages) / seconds:6.2f} passages a second, "
                f"{used / len(passages):.2f} seconds of the CPU each"
            )


if __name__ == "__main__":
    main()
