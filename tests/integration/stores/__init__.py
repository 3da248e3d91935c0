"""What every store has to do for a pack, checked on real stores.

`make test-stores` runs all checks and writes the table in docs/stores.md. Those of the embedded store, and
corners of FAISS, are run each time; corners of the others by the slow tests.
"""
