"""Node parsers: documents to linked nodes, which are sections, passages, propositions and sentences."""
