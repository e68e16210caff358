"""Write docs/matrix.md from docs/evidence/matrix.jsonl: `python -m tools.matrix_page`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.report.text_format import format_table
from harness.walkthroughs.matrix.cases import CASES
from harness.walkthroughs.matrix.sweep import Attempt
from harness.walkthroughs.matrix.table import (
    Place,
    describe_cell,
    format_place,
    places,
    read_attempts,
    requests_of,
)

_DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = _DOCS / "matrix.md"
RESULTS: Final = _DOCS / "evidence" / "matrix.jsonl"
_HEAD: Final = """# Client matrix

For everyone who chooses or upgrades a client library or a broker: which library keeps exactly-once in which
case.

Written by `make matrix`, which makes the attempts that `docs/evidence/matrix.jsonl` lacks: three for each
cell. A sweep that was interrupted continues. `make matrix MATRIX_ARGS="--library sarama --kafka 4.3.1"` makes
a part of them, and `eos matrix` those of the cluster that is up. A case that is missing was not run. Each
attempt has a topic and a transactional id of its own. Its committed records are read twice: by a consumer
with `read_committed`, and from the batches and markers in the log of the leader. The number of attempts is in
brackets. A cell whose attempts differ shows every mark.

| mark | means |
| --- | --- |
| holds | exactly-once |
| stopped | the library gave up with an error, and lost nothing that it had acknowledged |
| exposed | a known hazard struck, and no client got an error |
| broken | records were lost, doubled or mixed, or an outdated producer was not refused |
| not possible | the library has no such call |
| not shown | the attempt did not happen as intended, and shows nothing |

`late abort` is the hazard of [late EndTxn requests](hazards/late-endtxn.md): transaction version 2 protects a
library that sends EndTxn 5. `stale group` is what KIP-447 cannot refuse: the library names the group, and no
membership.
"""
_FOUND: Final = """
## Repeats that differed

Attempts of kafka-python 3.0.12 in `stale member` were `not shown` now and then: the consumer had no
assignment within 30 s. The cause is in the library. If `poll(timeout_ms=...)` ends between the answers
to JoinGroup and SyncGroup, the next polls do not apply the assignment that then arrives, and the
consumer sends no heartbeat until its session expires. It struck 3 of 60 consumers on a busy machine that
polled for 100 ms each time. The driver polls for longer than a join takes, and these attempts were made
again.
"""
_PROTOCOL: Final = """
## Add a client library

A driver is a program that reads one command per line from standard input and prints one line for each. It
first prints `ok`.

| command | does |
| --- | --- |
| `open NAME BOOTSTRAP TRANSACTIONAL_ID CLIENT_ID TIMEOUT_MS` | creates a producer |
| `init NAME` | initialises its transactional id |
| `begin NAME`, `commit NAME`, `abort NAME` | begins or ends a transaction |
| `send NAME TOPIC PARTITION VALUE...` | sends records and waits for their acks |
| `join MEMBER BOOTSTRAP GROUP TOPIC`, `leave MEMBER` | joins a group and keeps its metadata; leaves it |
| `offset NAME GROUP TOPIC PARTITION OFFSET [MEMBER]` | adds a position, with metadata if MEMBER is named |
| `close NAME` | drops the producer |

The answer is `ok`, `error NAME MESSAGE` or `unsupported MESSAGE`. Drivers are in
`harness/provision/data/clients`, `harness/walkthroughs/matrix/python_driver.py` and
`harness/clients/scripted/java`; the list is in `harness/walkthroughs/matrix/libraries.py`.
Packages are pinned, and fetched when a library is used for the first time.
"""


def page(attempts: Sequence[Attempt]) -> str:
    """Return the text of the page."""
    lines = [_HEAD, "## Cases", ""]
    lines += format_table([(case.name, case.asks) for case in CASES], ("case", "question"), markdown=True)
    for place in places(attempts):
        lines += ["", *_section(attempts, place)]
    return "\n".join(lines) + "\n" + _FOUND + _PROTOCOL


def _section(attempts: Sequence[Attempt], place: Place) -> list[str]:
    here = [attempt for attempt in attempts if (attempt.kafka, attempt.transaction_version) == place]
    days = sorted({attempt.day for attempt in here})
    lines = [f"## Kafka {place[0]}, transaction version {place[1]}", "", f"Run on {', '.join(days)}.", ""]
    lines += format_place(attempts, place, markdown=True)
    rows = []
    for library in dict.fromkeys((attempt.library, attempt.version) for attempt in here):
        own = [attempt for attempt in here if (attempt.library, attempt.version) == library]
        rows.append((" ".join(library), requests_of(own)))
    lines += ["", "The highest version of each request that a library sent:", ""]
    lines += format_table(rows, ("client", "requests"), markdown=True)
    lines += ["", "Evidence, of the first attempt of each cell:", ""]
    return lines + format_table(_evidence(here), ("client", "case", "mark", "observed"), markdown=True)


def _evidence(here: Sequence[Attempt]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for first in (attempt for attempt in here if attempt.number == 1):
        key = (first.library, first.version, first.case)
        cell = [attempt for attempt in here if (attempt.library, attempt.version, attempt.case) == key]
        observed = first.observed.replace("|", "/").replace("<", "(").replace(">", ")")
        rows.append((f"{first.library} {first.version}", first.case, describe_cell(cell), observed))
    return rows


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(read_attempts(RESULTS)))


if __name__ == "__main__":
    main()
