"""Dense, keyword and hybrid search of propositions, retrievers over it, and the context that the LLM
reads."""
