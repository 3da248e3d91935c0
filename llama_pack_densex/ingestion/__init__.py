"""Around an ingestion: its cost, its progress, what became of each document, and other ways to run it."""
