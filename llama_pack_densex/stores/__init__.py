"""One index over a vector store: write, replace, delete, fetch by id; the embedded default is an SQLite database."""
