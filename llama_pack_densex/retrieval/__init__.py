"""Recursive and auto-merging retrieval over propositions, lexical search, and the context that the LLM reads."""
