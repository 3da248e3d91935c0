"""What every store has to do for a pack, checked on real stores.

`make test-stores` runs all checks and writes the table in docs/stores.md; those of the embedded store and of FAISS are
run each time, and those of the others by the slow tests.
"""
