"""The ledger: the pure fold of a history into the fate of every record, kept as intervals."""

from harness.evidence.ledger.fold import fold
from harness.evidence.ledger.history_scan import Scan, scan
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
