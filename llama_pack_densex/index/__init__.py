"""Documents into an index, and the index kept whole: open, change, commit, follow; check and compact."""
