"""Adapters for vector stores of LlamaIndex integrations, which differ in what they keep and give back."""
