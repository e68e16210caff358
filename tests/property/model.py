"""Executable model of Kafka's log: clients take steps, and the model writes the log by Kafka's rules.

A world is a history of steps and the resulting log. Markers and the records of transactions that did not
commit have offsets, but readers do not receive them. `planting.py` changes a correct world so that it breaks
one rule at one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.planted.tiny import Tiny

PARTITIONS = ("a", "b")
KINDS: dict[int, dict[str, Any]] = {
    1: {},
    2: {},
    3: {"transactional_id": None},
    4: {"transactional_id": None, "idempotent": False, "acks": "1", "in_flight": 5},
}
"""Producers 1 and 2 are transactional, producer 3 is idempotent, producer 4 has no guarantees."""

TRANSACTION_ENDS = ("commit ok", "abort ok", "abort info", "commit info", "commit none", "commit fail")
SEND_ENDS = ("ok", "info", "fail", "none")


@dataclass
class Entry:
    """Content of one offset: a record or a marker. `shown` is true if read_committed readers receive it.

    `raw` is its token in the raw log, with the label that a record of a transaction carries.
    """

    token: str = "."
    shown: bool = False
    fate: str = ""
    step: int = -1
    producer: int = 0
    raw: str = ""


class Deed(NamedTuple):
    """One step of a producer: a send, or a transaction with its commit or abort.

    If the answer to the step is unclear, `truth` is true if the step took full effect.
    """

    producer: int
    step: int
    end: str
    counts: dict[str, int]
    truth: bool


@dataclass
class World:
    """The clients' histories, and the contents of every partition."""

    history: list[str] = field(default_factory=list)
    log: dict[str, list[Entry]] = field(default_factory=lambda: {name: [] for name in PARTITIONS})
    next: dict[tuple[int, str], int] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {f"p{n}": dict(k) for n, k in KINDS.items()}
    )
    asked: dict[int, int] = field(default_factory=dict)  # step -> line of its commit or abort in `history`
    tails: set[int] = field(default_factory=set)
    txn: dict[int, int] = field(default_factory=dict)  # producer -> number of its last transaction
    with_raw_log: bool = False

    def case(self) -> Tiny:
        """Return the world as a case for the checkers."""
        log = {
            name: " ".join(e.token if e.shown else "." for e in entries) for name, entries in self.log.items()
        }
        raw = {name: " ".join(e.raw for e in entries) for name, entries in self.log.items()}
        return Tiny("\n".join(self.history), log, self.settings, raw=raw if self.with_raw_log else {})

    def entries(self) -> list[tuple[str, int, Entry]]:
        """Return a tuple (partition, offset, entry) for every offset of the log."""
        return [(name, i, e) for name, entries in self.log.items() for i, e in enumerate(entries)]

    def append(self, deed: Deed, name: str, count: int, fate: str, *, shown: bool) -> tuple[int, int]:
        """Append `count` records to partition `name`, in order; return their first and last sequence."""
        producer = deed.producer
        first = self.next.get((producer, name), 0)
        self.next[producer, name] = first + count
        for seq in range(first, first + count):
            token = f"p{producer}:{seq}"
            intent = "a" if deed.end.startswith("abort") else "c"
            label = "" if KINDS.get(producer) else f"~{self.txn[producer]}{intent}"
            self.log[name].append(Entry(token, shown, fate, deed.step, producer, token + label))
        return first, first + count - 1


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a correct world of up to ten steps: four producers write, and a live reader reads in between."""
    world = World()
    rows = st.tuples(
        st.sampled_from(list(KINDS)),
        st.integers(0, 5),
        st.integers(0, 4),
        st.integers(0, 3),
        st.booleans(),
        st.integers(0, 5),
    )
    for step, (producer, end, in_a, in_b, truth, other) in enumerate(
        draw(st.lists(rows, min_size=1, max_size=10))
    ):
        if producer in world.tails:
            continue
        counts = {name: n for name, n in (("a", in_a), ("b", in_b)) if n}
        if not counts:
            _read(world, other)
        elif KINDS[producer]:
            _send(world, Deed(producer, step, SEND_ENDS[end % 4], counts, truth))
        elif other == 5 and end == 0:
            _die(world, Deed(producer, step, "", counts, truth))
        else:
            _transact(world, Deed(producer, step, TRANSACTION_ENDS[end], counts, truth))
    # Add one committed transaction, because a world without records has nothing to check.
    _transact(world, Deed(9, 99, "commit ok", {"a": 2, "b": 2}, truth=True))
    world.settings["p9"] = {}
    return world


def _transact(world: World, deed: Deed) -> None:
    producer, step, end, counts, truth = deed
    known = {"commit ok": "committed", "commit info": "unknown", "commit none": "unknown"}
    fate = known.get(end, "aborted")
    world.txn[producer] = world.txn.get(producer, 0) + 1
    shown = fate == "committed" or (fate == "unknown" and truth)
    sent = []
    for name, count in counts.items():
        # Append the records in two parts with a marker of another producer between them, because Kafka
        # permits interleaving.
        head = count // 2
        first, _ = world.append(deed, name, head, fate, shown=shown)
        if head and truth:
            world.log[name].append(Entry(raw="A77"))
        _, last = world.append(deed, name, count - head, fate, shown=shown)
        sent.append(f"{name}:{first}-{last}")
        world.log[name].append(Entry(raw=f"{'C' if shown else 'A'}{producer}", step=step, fate=fate))
    world.asked[step] = len(world.history)
    world.history.append(f"p{producer} {end} {' '.join(sent)}")
    if end == "commit none":
        # The client was killed before an answer arrived, so this producer takes no further steps.
        world.tails.add(producer)


def _die(world: World, deed: Deed) -> None:
    producer, counts = deed.producer, deed.counts
    world.txn[producer] = world.txn.get(producer, 0) + 1
    for name, count in counts.items():
        world.append(deed, name, count, "aborted", shown=False)
        world.log[name].append(Entry(raw=f"A{producer}", step=deed.step, fate="aborted"))
    world.history.append(f"p{producer} begin")
    world.tails.add(producer)


def _send(world: World, deed: Deed) -> None:
    producer, step, end, counts, truth = deed
    parts, loose = [], producer == 4
    for name, count in counts.items():
        offset = len(world.log[name])
        first = world.next.get((producer, name), 0)
        if end == "ok":
            last = world.append(deed, name, count, "loose" if loose else "committed", shown=True)[1]
            parts.append(f"{name}:{first}-{last}" + (f">{offset}" if truth else ""))
        elif end == "fail":
            world.next[producer, name] = first + count
            parts.append(f"{name}:{first}-{first + count - 1}")
        else:
            # The client got no clear answer. If `truth`, the log contains all records of the send, otherwise
            # only the first half of them. With the answer `info`, the history also reports that the first
            # record was written.
            written = count if truth else count // 2
            world.append(deed, name, written, "loose" if loose else "unclear", shown=True)
            world.next[producer, name] = first + count
            known = f" +{name}:{first}>{offset}" if end == "info" and written else ""
            parts.append(f"{name}:{first}-{first + count - 1}{known}")
            if known and not loose:
                world.log[name][offset].fate = "committed"
        if loose and truth and end == "ok":
            # Without idempotence, Kafka may write a record twice.
            token = f"p{producer}:{first}"
            world.log[name].append(Entry(token, True, "loose", step, producer, token))
    world.history.append(f"p{producer} send {end} {' '.join(parts)}")
    if end == "none":
        world.tails.add(producer)


def _read(world: World, start: int) -> None:
    """Add one read of each partition by reader r1, from offset `start` on.

    Before each read, r1 seeks to its first offset, so it may read some offsets again and leave others out.
    """
    for name, entries in world.log.items():
        low = min(start, len(entries))
        runs: list[str] = []
        at = low
        for offset, entry in enumerate(entries[low:], low):
            if entry.shown and entry.fate != "unknown":
                if not runs:
                    at = offset
                runs.append(entry.token)
            elif runs:
                break
        if runs:
            world.history.append(f"r1 seek {name}@{at}")
            world.history.append(f"r1 read {name}@{at} {' '.join(runs)}")
