"""A helper process that folds history files (parallel_fold.py).

It reads one request per line from standard input, and writes one result per request to standard output.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from harness.base.errors import HarnessError
from harness.evidence.history import HistoryFile
from harness.evidence.ledger.fold import fold_file
from harness.evidence.ledger.parallel_fold import Folded, Request, send


def main() -> None:
    """Fold the file of each request, until standard input ends."""
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=Request)
        try:
            folded: Folded = fold_file(HistoryFile(Path(request.path)), request.finished)
        except HarnessError as error:
            folded = error
        send(folded, sys.stdout.buffer)


if __name__ == "__main__":
    main()
