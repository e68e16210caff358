"""The ledger: the fate of every record, computed from the histories alone.

It stores fates for intervals of sequences, not for single records.
"""

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
