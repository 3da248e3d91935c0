"""What every store has to do for a pack, checked on real stores.

`make test-stores` runs all of them and writes the table in docs/stores.md; without `--all-stores` those run that
continuous integration has.
"""
