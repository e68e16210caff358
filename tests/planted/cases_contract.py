"""Planted test cases for the contract of an application: outputs that contain the tokens of its inputs.

The inputs are in the partitions a and b of topic t, so their lanes are a and b. The outputs are in the
partitions x and y of topic out. `p1a:3` in an output is the token of the input of p1 with sequence 3 in lane
a, `?` is a record without a token, and `p1a:3+p1b:0` is a record with two tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from harness.evidence.app_list import AppList
from harness.evidence.checkers.app_outputs import output_witness
from harness.evidence.checkers.model import AppContract, Evidence, Expect, OutputContract
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.observation_builder import Records, observe, observe_outputs
from harness.evidence.record import NONE, Identity
from harness.evidence.token import NO_TOKEN
from tests.planted.tiny import Tiny, _identity, _offsets

RUN = "r7k2m9qa"
GROUP = "workers"
HISTORY = """
    p1 commit ok a:0-9 b:0-4
    p1 abort ok a:10-11
    p1 commit ok a:12-15
"""
INPUTS = {"a": "p1:0-9 . . . p1:12-15 .", "b": "p1:0-4 ."}
ALL = "p1a:0-9 p1b:0-4 . p1a:12-15 ."
"""Outputs of a correct application, in one partition."""
END = {"a": 17, "b": 5}


@dataclass
class AppCase:
    """One case: histories and inputs as in a Tiny case, and the outputs in the partitions x and y."""

    x: str = ALL
    y: str = ""
    order: Any = "partition"
    each: tuple[int, int | None] = (1, 1)
    consumed: dict[str, int] | None = field(default_factory=lambda: dict(END))
    group: str = GROUP
    history: str = HISTORY
    inputs: dict[str, str] = field(default_factory=lambda: dict(INPUTS))
    other: str | None = None
    """Outputs in x according to a second witness; None if there is none."""
    witnesses: tuple[str, ...] = ()
    complete: bool = True
    other_complete: bool = True
    counted: bool = True
    gave_up: str = ""
    source: Any = "topic"
    late: dict[str, str] = field(default_factory=dict)
    """How late threads woke, as in a Tiny case."""

    def evidence(self) -> Evidence:
        least, most = self.each
        output = OutputContract(topic="out", least=least, most=most, order=self.order, source=self.source)
        contract = AppContract(inputs=["t"], outputs=[output], group=self.group)
        evidence = Tiny(self.history, self.inputs, late=self.late).evidence()
        evidence.expect = Expect(contract=contract, witnesses=[], lateness=bool(self.late))
        names = self.witnesses or ("reader",)
        evidence.observations.append(self._outputs(names[0], self.x, self.y))
        if self.other is not None:
            name = "spark" if self.source == "topic" else "spark-batch"
            evidence.observations.append(self._outputs(name, self.other, self.y))
            evidence.observations[-1].meta.complete = self.other_complete
        if self.consumed is not None:
            evidence.observations.append(self._consumed(self.consumed))
        if self.witnesses:
            evidence.expect = msgspec.structs.replace(evidence.expect, witnesses=[*self.witnesses])
            whole = evidence.observations.pop(0)
            for name in self.witnesses:
                meta = msgspec.structs.replace(whole.meta, witness=name)
                evidence.observations.append(replace(whole, meta=meta))
        if self.gave_up:
            evidence.app = AppList(run=RUN, clock="clock", gave_up={"app-1": self.gave_up})
        return evidence

    def judge(self) -> Judgement:
        return judge(self.evidence())

    def _outputs(self, witness: str, *logs: str) -> Observation:
        records, windows = Records(), []
        for index, text in enumerate(logs):
            tokens = _offsets(text)
            for offset, token in enumerate(tokens):
                for part in token.split("+"):
                    if part == "?":
                        records.add(index, offset, Identity(RUN, NO_TOKEN, 0, offset))
                    elif part != ".":
                        identity = _identity("a", part)
                        records.add(index, offset, identity._replace(txn=0, outcome=NONE))
            size = len(tokens)
            windows.append(Window(topic="out", partition=index, start=0, lso=size, hw=size, read_to=size))
        meta = Meta(witness=output_witness(witness, "out"), kind="reference", purpose="outputs")
        meta.complete, meta.windows, meta.clock = self.complete, windows, "clock"
        return observe_outputs(meta, records, counted=self.counted and self.each not in ((1, 1), (0, 1)))

    def _consumed(self, ends: dict[str, int]) -> Observation:
        records, windows = Records(), []
        for index, (name, text) in enumerate(self.inputs.items()):
            for offset, token in enumerate(_offsets(text)[: ends.get(name, 0)]):
                if token != ".":
                    records.add(index, offset, _identity(name, token))
            windows.append(Window("t", index, 0, ends.get(name, 0), ends.get(name, 0), ends.get(name, 0)))
        meta = Meta(witness="consumed", kind="reference", purpose="consumed", complete=True, group=self.group)
        meta.windows, meta.clock = windows, "clock"
        return observe(meta, records)


@dataclass
class Changed:
    """A case in which the observations with one purpose are changed."""

    case: AppCase
    purpose: str
    change: Callable[[Observation], None]

    def evidence(self) -> Evidence:
        evidence = self.case.evidence()
        for view in evidence.observations:
            if view.meta.purpose == self.purpose:
                self.change(view)
        return evidence

    def judge(self) -> Judgement:
        return judge(self.evidence())


def window(**fields: int) -> Callable[[Observation], None]:
    """Return a function that changes the first window of an observation."""

    def change(view: Observation) -> None:
        view.meta.windows[0] = msgspec.structs.replace(view.meta.windows[0], **fields)

    return change


def of(**fields: Any) -> Callable[[Observation], None]:
    """Return a function that changes the metadata of an observation."""

    def change(view: Observation) -> None:
        view.meta = msgspec.structs.replace(view.meta, **fields)

    return change


TWICE = "p1a:0-9 p1a:0-9 p1b:0-4 p1b:0-4 p1a:12-15 p1a:12-15"
MORE = "p1a:0-9 p1a:5-9 p1b:0-4 . p1a:12-15 ."

CAUGHT = {
    "never_processed": {
        "a-row-is-missing": (
            AppCase("p1a:0-2 p1a:4-9 p1b:0-4 p1a:12-15", source="command", order="none"),
            {"never_processed"},
        ),
        "an-input-was-dropped": (AppCase("p1a:0-2 p1a:4-9 p1b:0-4 p1a:12-15"), {"never_processed"}),
        "a-whole-partition-was-dropped": (AppCase("p1a:0-9 p1a:12-15"), {"never_processed"}),
        "no-output-at-all": (AppCase(""), {"never_processed"}),
        "without-a-group-a-later-input-has-an-output": (
            AppCase("p1a:0-2 p1a:4-9 p1b:0-4 p1a:12-15", group="", consumed=None),
            {"never_processed"},
        ),
        "one-output-of-two-is-missing": (
            AppCase("p1a:0-9 p1a:0-8 p1b:0-4 p1b:0-4 p1a:12-15 p1a:12-15", each=(2, 2), order="none"),
            {"never_processed"},
        ),
        "none-of-one-or-more": (AppCase("p1a:0-8 p1b:0-4 p1a:12-15", each=(1, None)), {"never_processed"}),
    },
    "stalled": {
        "the-group-stopped-before-the-end": (
            AppCase("p1a:0-9 p1b:0-4", consumed={"a": 10, "b": 5}),
            {"stalled"},
        ),
        "the-application-never-ran": (
            AppCase("", consumed={}, gave_up="app-1 ended with exit code 1"),
            {"stalled"},
        ),
        "skipped-behind-the-position": (
            AppCase("p1a:0-9 p1b:0-4 p1a:13-15", consumed={"a": 13, "b": 5}),
            {"stalled"},
        ),
        "without-a-group-at-the-end-of-a-lane": (
            AppCase("p1a:0-9 p1b:0-4 p1a:12-14", group="", consumed=None),
            {"stalled"},
        ),
    },
    "processed_twice": {
        "a-row-again": (AppCase(f"{ALL} p1a:3", source="jdbc", order="none"), {"processed_twice"}),
        "one-input-again": (AppCase("p1a:0-9 p1b:0-4 p1a:12-15 p1a:3"), {"processed_twice"}),
        "in-another-partition": (AppCase(ALL, "p1a:3"), {"processed_twice"}),
        "a-batch-again": (AppCase(MORE), {"processed_twice"}),
        "and-a-transaction-is-open": (Changed(AppCase(MORE), "outputs", window(hw=30)), {"processed_twice"}),
        "three-of-two": (AppCase(f"{TWICE} p1b:4", each=(2, 2), order="none"), {"processed_twice"}),
        "two-of-at-most-one": (AppCase(MORE, each=(0, 1)), {"processed_twice"}),
        # Three outputs of one input and one of another: the sum is right, the counts are not.
        "three-and-one-of-two": (
            AppCase(TWICE.replace("p1b:0-4 p1b:0-4", "p1b:0-4 p1b:0-3 p1b:0"), each=(2, 2), order="none"),
            {"processed_twice", "never_processed"},
        ),
    },
    "aborted_read": {"an-aborted-input-has-an-output": (AppCase("p1a:0-15 p1b:0-4"), {"aborted_read"})},
    "phantom": {
        "a-sequence-that-was-never-sent": (AppCase(f"{ALL} p1a:16"), {"phantom"}),
        "a-producer-that-is-not-declared": (AppCase(f"{ALL} p7a:0"), {"phantom"}),
        "a-call-without-a-token": (AppCase(f"{ALL} ?", source="http"), {"phantom"}),
        "a-record-without-a-token": (AppCase(f"{ALL} ?"), {"phantom"}),
    },
    "reordered": {
        "two-inputs-changed-places": (
            AppCase("p1a:0-3 p1a:5 p1a:4 p1a:6-9 p1b:0-4 p1a:12-15"),
            {"reordered"},
        ),
        "a-key-in-two-partitions": (
            AppCase("p1a:0-3 p1b:0-4 p1a:12-15", "p1a:4-9", order="key"),
            {"reordered"},
        ),
        "by-key-within-a-partition": (
            AppCase("p1a:0-9 p1b:1 p1b:0 p1b:2-4 p1a:12-15", order="key"),
            {"reordered"},
        ),
    },
}
NEAR_MISSES = {
    "contract": {
        "correct": AppCase(),
        "correct-without-a-group": AppCase(group="", consumed=None),
        "keys-in-different-partitions": AppCase("p1a:0-9 p1a:12-15", "p1b:0-4", order="key"),
        "interleaved": AppCase("p1a:0 p1b:0 p1a:1 p1b:1-4 p1a:2-9 p1a:12-15", order="key"),
        "no-order-demanded": AppCase("p1a:12-15 p1b:4 p1b:0-3 p1a:0-9", order="none"),
        "partitions-without-order-between-them": AppCase("p1a:4-9 p1b:0-4", "p1a:0-3 p1a:12-15"),
        "two-each": AppCase(TWICE, each=(2, 2), order="none"),
        "two-each-in-two-partitions": AppCase(ALL, ALL, each=(2, 2)),
        "one-or-more": AppCase(MORE, each=(1, None), order="none"),
        "none-or-one": AppCase("p1a:0-2 p1b:4", each=(0, 1)),
        "none-or-more": AppCase("", each=(0, None)),
        "a-second-witness-agrees": AppCase(other=ALL, witnesses=("reader", "spark")),
        "the-stream-does-not-read-rows": AppCase(
            other=ALL, witnesses=("reader", "spark", "spark-batch"), source="jdbc"
        ),
        "calls-in-order": AppCase(source="http"),
        "the-group-did-not-read-the-last-marker": AppCase(consumed={"a": 16, "b": 5}),
        "the-log-of-the-inputs-is-longer": Changed(AppCase(), "consumed", window(lso=30, hw=30)),
        "rows-of-a-command": AppCase(source="command", order="none"),
        "the-fate-is-unknown-and-it-is-readable": AppCase(
            f"{ALL} p1a:16",
            history=f"{HISTORY}    p1 commit info a:16",
            inputs=INPUTS | {"a": f"{INPUTS['a']} p1:16 ."},
            consumed={"a": 19, "b": 5},
        ),
    }
}
UNKNOWN = {
    "a record with two different tokens": AppCase("p1a:0-9 p1b:0-4 p1a:12-13 p1a:14+p1a:15"),
    "an interrupted run does not wait for the application": AppCase(
        "p1a:0-9 p1b:0-4", consumed={"a": 10, "b": 5}, history=f"{HISTORY}    skipped interrupted"
    ),
    "the second witness read something else": AppCase(
        other="p1a:0-9 p1b:0-4 . . . . . .", each=(0, 1), witnesses=("reader", "spark")
    ),
    "the second witness is missing": AppCase(witnesses=("reader", "spark")),
    "the second reader of rows is missing": AppCase(witnesses=("reader", "spark-batch"), source="jdbc"),
    "two readers of rows disagree": AppCase(
        other="p1a:0-9 p1b:0-4 . . . . . .", each=(0, 1), witnesses=("reader", "spark-batch"), source="jdbc"
    ),
    "the second reader of rows failed": AppCase(
        other="", other_complete=False, witnesses=("reader", "spark-batch"), source="command"
    ),
    "the second witness is incomplete": AppCase(
        other="p1a:0-9", other_complete=False, witnesses=("reader", "spark")
    ),
    "the only witness is incomplete": AppCase(complete=False),
    "no witness read up to the position of the group": AppCase("p1a:0-9 p1b:0-4 . p1a:12-14", consumed=None),
    "the fate of an input that cannot be read is unknown": AppCase(
        f"{ALL} p1a:16", history=f"{HISTORY}    p1 commit info a:16"
    ),
    "the position of the group is not known, and every input has an output": AppCase(consumed=None),
    "only the position of another group is known": Changed(AppCase(), "consumed", of(group="others")),
    "the inputs before the position were not read completely": Changed(
        AppCase(), "consumed", of(complete=False)
    ),
    "the first outputs were deleted": Changed(
        AppCase(". . . p1a:3-9 p1b:0-4 . p1a:12-15"), "outputs", window(start=3)
    ),
    "one of two outputs was deleted": Changed(
        AppCase(f". . {TWICE.removeprefix('p1a:0-9 ')} p1a:2-9", each=(2, 2)), "outputs", window(start=2)
    ),
    "the outputs were read in part": Changed(
        AppCase("p1a:0-9 p1b:0-4 p1a:12-14"), "outputs", window(lso=20, hw=20)
    ),
    "a transaction is open behind the outputs": Changed(AppCase(), "outputs", window(hw=30)),
    "the outputs were read uncommitted": Changed(AppCase(MORE), "outputs", of(isolation="read_uncommitted")),
    "outputs beyond one were not counted": AppCase(TWICE, each=(2, 2), order="none", counted=False),
}
