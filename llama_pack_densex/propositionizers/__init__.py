"""Propositionizers, which turn passages into propositions: by an LLM, a local T5, recordings or sentences."""
