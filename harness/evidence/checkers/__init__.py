"""Checkers that compare the ledger with observations, one module per property.

verdict.py merges the results of all checkers into the verdict.
"""
