"""Dense, keyword and hybrid search of units, the retrievers built on it, and the context that the LLM
reads."""
