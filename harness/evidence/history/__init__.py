"""The history: append-only files that record what clients and fault injectors observed.

docs/history-format.md describes the format.
"""

from harness.evidence.history.file_reader import Block, HistoryFile, history_files
from harness.evidence.history.lines import (
    COMMITTED_POSITION,
    FORMAT,
    Acked,
    Bounds,
    Completion,
    Error,
    Fail,
    FaultLine,
    HistoryClosed,
    HistoryOpened,
    Info,
    Invoke,
    Lateness,
    Line,
    Ok,
    Position,
    Producer,
    Read,
    Sample,
    Sent,
    schema_text,
)
from harness.evidence.history.writer import HistoryWriter

__all__ = [
    "COMMITTED_POSITION",
    "FORMAT",
    "Acked",
    "Block",
    "Bounds",
    "Completion",
    "Error",
    "Fail",
    "FaultLine",
    "HistoryClosed",
    "HistoryFile",
    "HistoryOpened",
    "HistoryWriter",
    "Info",
    "Invoke",
    "Lateness",
    "Line",
    "Ok",
    "Position",
    "Producer",
    "Read",
    "Sample",
    "Sent",
    "history_files",
    "schema_text",
]
