"""Model of a pipeline, and functions that each plant one anomaly in it.

A worker commits its outputs and the offsets of their inputs in the same transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from harness.evidence.changelog_record import NOTHING, Totals, key_of
from tests.planted.tiny import Tiny, pipeline


@dataclass
class Pipe:
    """A pipeline: its inputs, the outputs and changelog of its workers, and its group's committed offset."""

    inputs: int = 0
    history: list[str] = field(default_factory=list)
    out: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    totals: dict[int, Totals] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=lambda: {7: 0, 8: 0})
    next_total: dict[int, int] = field(default_factory=lambda: {7: 0, 8: 0})
    position: int = 0
    consumed: int | None = None

    def case(self) -> Tiny:
        """Return the pipeline as a case for the checkers."""
        log = {"i": f"p1:0-{self.inputs - 1} .", "o": " ".join(self.out), "c": " ".join(self.log)}
        history = "\n".join(
            [f"p1 commit ok i:0-{self.inputs - 1}", *self.history, f"group i:{self.position}"]
        )
        consumed = self.position if self.consumed is None else self.consumed
        return Tiny(history, log, expect=pipeline(changelog="log"), consumed=consumed)

    def process(self, worker: int, count: int, end: str) -> None:
        """Process `count` inputs in one transaction. Only a commit advances the group's committed offset."""
        first = self.made[worker]
        self.made[worker] = first + count
        shown = end == "commit ok"
        for i in range(count):
            self.out.append(f"p{worker}:{first + i}<p1:{self.position + i}$" if shown else ".")
        self.out.append(".")
        until = self.position + count
        written = self._count(worker, until, shown=shown)
        self.history.append(f"p{worker} offsets i:{until}")
        self.history.append(f"p{worker} {end} o:{first}-{first + count - 1} c:{written[0]}-{written[-1]}")
        self.position = until if shown else self.position

    def _count(self, worker: int, until: int, *, shown: bool) -> range:
        """Add the inputs of one transaction to the totals; return the sequences of its changelog records."""
        totals, changed = dict(self.totals), set()
        for seq in range(self.position, until):
            changed.add(key_of(seq))
            totals[key_of(seq)] = totals.get(key_of(seq), NOTHING).add(seq)
        first = self.next_total[worker]
        self.next_total[worker] = first + len(changed)
        for seq, key in enumerate(sorted(changed), first):
            now = totals[key]
            self.log.append(f"p{worker}:{seq}={key}:{now.inputs}/{now.total}" if shown else ".")
        self.log.append(".")
        self.totals = totals if shown else self.totals
        return range(first, first + len(changed))


@st.composite
def pipes(draw: st.DrawFn) -> Pipe:
    """Draw a correct pipeline: two workers alternate, transactions may abort, inputs may stay unprocessed."""
    pipe = Pipe(inputs=draw(st.integers(2, 300)))
    turns = st.tuples(
        st.sampled_from([7, 8]), st.integers(1, 90), st.sampled_from(["commit ok", "commit ok", "abort ok"])
    )
    for worker, count, end in draw(st.lists(turns, max_size=6)):
        left = pipe.inputs - pipe.position
        if left:
            pipe.process(worker, min(count, left), end)
    if not pipe.position:
        pipe.process(7, 1, "commit ok")
    return pipe


def _shown(pipe: Pipe) -> list[int]:
    return [i for i, token in enumerate(pipe.out) if token != "."]


def processed_twice(pipe: Pipe, place: int) -> None:
    """Add a second output for one input."""
    shown = _shown(pipe)
    origin = pipe.out[shown[place % len(shown)]].split("<")[1]
    pipe.out += [f"p9:0<{origin}", "."]
    pipe.history.append("p9 commit ok o:0-0")


def never_processed(pipe: Pipe, place: int) -> None:
    """Let one output no longer name its input, so that this input has no output."""
    shown = _shown(pipe)
    victim = shown[place % len(shown)]
    pipe.out[victim] = pipe.out[victim].split("<")[0]


def offset_drift(pipe: Pipe, place: int) -> None:
    """Set the group's committed offset back to an input whose output is already committed."""
    pipe.consumed = pipe.position - 1 - place % pipe.position
    pipe.position = pipe.consumed


def aggregate_drift(pipe: Pipe, place: int) -> None:
    """Make the last changelog record of a key include one input too many."""
    key = sorted(pipe.totals)[place % len(pipe.totals)]
    last = max(i for i, token in enumerate(pipe.log) if f"={key}:" in token)
    fields, correct = pipe.log[last].split(":")[:2], pipe.totals[key].add(place)
    pipe.log[last] = f"{':'.join(fields)}:{correct.inputs}/{correct.total}"


def corrupted_output(pipe: Pipe, place: int) -> None:
    """Give one output the checksum of another value than that of its input."""
    shown = _shown(pipe)
    victim = shown[place % len(shown)]
    pipe.out[victim] = pipe.out[victim].replace("$", "!")


PLANTINGS = {
    "processed_twice": (processed_twice, frozenset[str]()),
    "never_processed": (never_processed, frozenset({"offset_drift"})),
    # The changelog then counts inputs at and after the committed offset, so the checkers may also report
    # aggregate_drift.
    "offset_drift": (offset_drift, frozenset({"aggregate_drift"})),
    "corrupted_output": (corrupted_output, frozenset[str]()),
    "aggregate_drift": (aggregate_drift, frozenset[str]()),
}
