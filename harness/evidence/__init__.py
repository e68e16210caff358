"""What a run leaves on disk, and how it is checked: records, histories, ledger, checkers; pure."""
