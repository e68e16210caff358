"""The ledger: the pure fold of a history into the fate of every record, kept as intervals."""

from harness.ledger.fold import fold
from harness.ledger.model import (
    ABORTED,
    COMMITTED,
    FATE_NAMES,
    LANE_SHIFT,
    NEVER,
    OPEN_END,
    UNKNOWN,
    Contract,
    Declared,
    Intervals,
    Ledger,
    Ownership,
)
from harness.ledger.scan import Scan, scan

__all__ = [
    "ABORTED",
    "COMMITTED",
    "FATE_NAMES",
    "LANE_SHIFT",
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
