"""The ledger: the fate of every record, as intervals of sequences, computed from the histories alone."""

from harness.evidence.ledger.fold import fold
from harness.evidence.ledger.history_scan import LINE_OPERATIONS, Scan, scan
from harness.evidence.ledger.tables import (
    ABORTED,
    COMMITTED,
    FATE_NAMES,
    NEVER,
    OPEN_END,
    UNKNOWN,
    Contract,
    Declared,
    Intervals,
    Ledger,
    Ownership,
)

__all__ = [
    "ABORTED",
    "COMMITTED",
    "FATE_NAMES",
    "LINE_OPERATIONS",
    "NEVER",
    "OPEN_END",
    "UNKNOWN",
    "Contract",
    "Declared",
    "Intervals",
    "Ledger",
    "Ownership",
    "Scan",
    "fold",
    "scan",
]
