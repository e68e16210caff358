"""The checkers: one file per property, pure over ledger and observations; the verdict merges them."""
