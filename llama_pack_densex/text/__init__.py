"""Text processing that knows nothing of the index: blocks, headings, sentences, tokens, languages."""
