"""The marks that models and servers leave around thoughts in the text of a reply."""

from __future__ import annotations

MARKS = {
    "<think>": ("<think>", "</think>"),
    "on lines of their own": ("<think>\n", "\n</think>\n\n"),
    "<thinking>": ("<thinking>", "</thinking>\n"),
    "<reasoning>": ("<reasoning>", "</reasoning>"),
    "<thought>": ("<thought>", "</thought>"),
    "<reflection>": ("<reflection>", "</reflection>\n"),
    "<scratchpad>": ("<scratchpad>\n", "</scratchpad>\n\n"),
    "<seed:think>": ("<seed:think>", "</seed:think>"),
    "capital letters": ("<THINK>", "</THINK>"),
    "attributes": ('<thinking effort="low">', "</thinking >\n"),
    "two names": ("<think>", "</thinking>\n"),
    "square brackets": ("[THINK]", "[/THINK]"),
    "triangles": ("◁think▷", "◁/think▷"),
    "tokens": ("<|begin_of_thought|>\n", "\n<|end_of_thought|>\n\n"),
    "tokens in capitals": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "channels": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    "channels of JSON": (
        "<|start|>assistant<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
    ),
    "channels without their tokens": ("analysis", "assistantfinal"),
    "a closing tag alone": ("", "\n</think>\n\n"),
    "a closing tag alone in the line": ("", "</think>"),
    "a closing bracket alone": ("", "[/THINK]"),
    "channels without an opening": ("", "<|end|><|start|>assistant<|channel|>final<|message|>"),
}
"""What stands before and behind thoughts."""
