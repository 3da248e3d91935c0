"""From documents to linked nodes: sections, passages, and the propositions and sentences under them."""
