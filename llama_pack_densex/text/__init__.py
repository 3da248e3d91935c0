"""Texts and nothing of ours: blocks of a document, headings, sentences, tokens, languages."""
