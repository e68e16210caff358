"""Random runs with readers: records that are lost, compared with a naive computation, record by record.

A run has transactions (p1) and sends (p2) of known and unknown outcome in two partitions. Two readers get
some of the records that the log holds. Then the log loses nothing, single records, its end, or one operation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from harness.evidence.checkers.model import Verdict
from tests.planted.tiny import Tiny

Record = tuple[str, str, int]
"""Producer, partition and sequence."""

SEEDS = 150
PLAIN = {"p2": {"transactional_id": None}}


@dataclass
class Run:
    """A random run: its history, the log while the readers read, and the log at the end."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    operations: list[tuple[str, str, set[Record]]] = field(default_factory=list)
    before: dict[str, list[Record | None]] = field(default_factory=lambda: {"a": [], "b": []})
    after: dict[str, list[Record | None]] = field(default_factory=dict)
    given: set[Record] = field(default_factory=set)
    polls: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """The offsets that each reader was given in each partition."""

    def __post_init__(self) -> None:
        sequences: dict[tuple[str, str], int] = {}
        for _ in range(self.random.randint(2, 7)):
            self._operate(sequences)
        self._read()
        self._lose()

    def _operate(self, sequences: dict[tuple[str, str], int]) -> None:
        producer = self.random.choice(["p1", "p2"])
        answer = self.random.choice(["ok", "info", "none"] + ["abort"] * (producer == "p1"))
        records: list[Record] = []
        parts = []
        for place in sorted(self.random.sample("ab", self.random.choice([1, 1, 2]))):
            first, count = sequences.get((producer, place), 0), self.random.randint(1, 4)
            sequences[producer, place] = first + count
            parts.append(f"{place}:{first}-{first + count - 1}")
            records += [(producer, place, seq) for seq in range(first, first + count)]
        verb = "abort ok" if answer == "abort" else f"{'commit' if producer == 'p1' else 'send'} {answer}"
        self.lines.append(f"{producer} {verb} {' '.join(parts)}")
        self.operations.append((producer, answer, set(records)))
        whole = answer == "ok" or (producer == "p1" and answer != "abort" and self.random.random() < 0.6)
        partial = producer == "p2" and answer != "ok"
        written = [r for r in records if whole or (partial and self.random.random() < 0.6)]
        for place, log in self.before.items():
            log.extend(record for record in written if record[1] == place)
            log.extend([None] * (producer == "p1"))

    def _read(self) -> None:
        for place, log in self.before.items():
            for offset, record in enumerate(log):
                if record is not None and self.random.random() < 0.4:
                    self.given.add(record)
                    reader = self.random.choice(["r1", "r2"])
                    self.polls.setdefault((reader, place), []).append(offset)
                    self.lines.append(f"{reader} read {place}@{offset} {record[0]}:{record[2]}")

    def _lose(self) -> None:
        how = self.random.choice(["nothing", "some", "the end", "an operation"])
        gone = self.random.choice(self.operations)[2] if how == "an operation" else set()
        for place, log in self.before.items():
            end = self.random.randint(0, len(log)) if how == "the end" else len(log)
            share = 0.2 if how == "some" else 0.0
            self.after[place] = [
                None if record in gone or self.random.random() < share else record for record in log[:end]
            ]

    def case(self) -> Tiny:
        text = {
            place: " ".join("." if record is None else f"{record[0]}:{record[2]}" for record in log)
            for place, log in self.after.items()
        }
        return Tiny("\n".join(self.lines), text, PLAIN)

    def expected(self) -> tuple[dict[str, int], int]:
        """Return the anomalies with their counts, and the number of certainly committed records."""
        readable = {record for log in self.after.values() for record in log if record is not None}
        lost: set[Record] = set()
        torn = certain = 0
        for producer, answer, records in self.operations:
            part = 0 < len(records & readable) < len(records)
            if answer != "abort":
                torn += producer == "p1" and part
                lost |= (records & self.given) - readable
            if answer == "ok":
                certain += len(records)
                lost |= records - readable
            elif producer == "p1" and answer != "abort" and records & self.given and not records & readable:
                lost |= records
        found = {"lost": len(lost), "torn_transaction": torn, **self._expected_of_polls()}
        return {name: count for name, count in found.items() if count}, certain

    def _expected_of_polls(self) -> dict[str, int]:
        """Return the partitions that ended behind a record that was read, and the records passed over."""
        truncated: set[str] = set()
        skipped: set[tuple[str, int]] = set()
        for (_, place), offsets in self.polls.items():
            log = self.after[place]
            truncated |= {place} if max(offsets) >= len(log) else set()
            between = range(offsets[0], min(offsets[-1], len(log)))
            skipped |= {(place, n) for n in between if log[n] is not None and n not in offsets}
        return {"log_truncated": len(truncated), "poll_skip": len(skipped)}


@pytest.mark.parametrize("block", range(3))
def test_lost_and_torn_records_agree_with_a_naive_computation(block: int) -> None:
    for seed in range(block * SEEDS // 3, (block + 1) * SEEDS // 3):
        run = Run(random.Random(seed))
        judgement = run.case().judge()
        anomalies, certain = run.expected()

        found = {a.name: a.count for result in judgement.results for a in result.anomalies}
        compared = next(r.compared for r in judgement.results if r.property == "exactly_once")
        assert (found, compared) == (anomalies, certain), f"seed {seed}: {run.lines} {run.after}"
        assert (judgement.verdict is Verdict.INVALID) == bool(anomalies), f"seed {seed}"
        assert certain or judgement.verdict is not Verdict.VALID, f"seed {seed}"
