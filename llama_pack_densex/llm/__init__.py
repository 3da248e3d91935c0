"""Requests to an LLM: cached, paced, retried, counted and priced. Knows nothing of propositions."""
