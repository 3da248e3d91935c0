"""The index: writing documents into it, opening, changing and committing it, checking and compacting it."""
