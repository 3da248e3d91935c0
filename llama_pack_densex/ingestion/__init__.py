"""Around an ingestion: what it will cost, how far it is, what became of each document, and other ways to run it."""
