"""Checkers, one module per property, that compare the ledger with observations; verdict.py merges results."""
