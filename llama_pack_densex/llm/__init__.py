"""Requests to an LLM: kept, paced, tried again, counted and priced. It knows nothing of propositions."""
