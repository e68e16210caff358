"""Test cases for Spark: planted cases, and random ledgers whose logs match them except for flaws."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.evidence.checkers.model import Evidence
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import Ledger, fold
from harness.evidence.observation import Observation
from harness.evidence.record import Identity, encode
from tests.planted import cases_records, cases_systems, cases_transactions
from tests.planted.tiny import LANES, Tiny
from tests.planted.tiny import _identity as tiny_identity
from tests.planted.tiny import _offsets as tiny_offsets
from tests.spark.generated import FLAWS, RUN, Log, Shape, Value, reference

Sent = list[tuple[int, int, int]]

ENDS = ("ok", "ok", "ok", "abort", "info")


@dataclass
class Case:
    """A ledger, the contents of its topic, and the expected observation."""

    name: str
    ledger: Ledger
    log: Log
    observation: Observation

    def evidence(self) -> Evidence:
        return Evidence(self.ledger, [self.observation])


def planted() -> Iterator[Case]:
    """Yield the planted cases that have no separate observation of inputs; encode their records as bytes."""
    tables: list[tuple[str, dict[str, Any]]] = []
    for module in (cases_records, cases_transactions, cases_systems):
        for table in (module.CAUGHT, module.NEAR_MISSES):
            tables += list(table.items())
    for name, group in tables:
        for label, one in group.items():
            case = one[0] if isinstance(one, tuple) else one
            if isinstance(case, Tiny) and case.consumed is None:
                yield from _of_tiny(f"{name}: {label}", case)


def _of_tiny(name: str, case: Tiny) -> Iterator[Case]:
    evidence = case.evidence()
    observation = evidence.observations[0]
    log = Log(len(case.log))
    for index, partition in enumerate(case.log):
        for offset, token in enumerate(tiny_offsets(case.log[partition])):
            if token == ".":
                continue
            value = b"?" if token == "?" else encode(tiny_identity(partition, token)._replace(run=RUN))
            log.rows.append((index, offset, value))
    places = {(w.topic, w.partition) for w in observation.meta.windows}
    assert places <= set(LANES.values())
    yield Case(name, evidence.ledger, log, observation)


def generated(count: int) -> Iterator[Case]:
    """Yield `count` randomly drawn cases; the first six have extreme sizes, such as sequences above 2**32."""
    for seed in range(count):
        rng = random.Random(seed)
        special = {
            0: Shape(1, 1, 0, 0),
            1: Shape(1, 1, 0, 1, 1),
            2: Shape(2, 3, 2**32 + 77, 30),
            3: Shape(4, 1000, 0, 1200, 3),
            4: Shape(64, 3, 0, 200),
            5: Shape(1, 1, 255, 40, 300),
        }
        shape = special.get(seed) or Shape(
            rng.choice([1, 2, 4]),
            rng.choice([1, 2, 5]),
            rng.choice([0, 0, 250, 5 * 10**9]),
            rng.choice([3, 20, 60]),
        )
        flaws = {name: rng.choice([0.0, 0.0, 0.01, 0.1]) for name in FLAWS if name != "clash"}
        flaws |= {"shown": rng.choice([0.0, 0.0, 0.2]), "torn": rng.choice([0.0, 0.0, 0.3])}
        yield _drawn(rng, seed, shape, {} if rng.random() < 0.25 else flaws)


def _drawn(rng: random.Random, seed: int, shape: Shape, flaws: dict[str, float]) -> Case:
    histories: dict[int, list[dict[str, Any]]] = {}
    parts: list[list[Value]] = [[] for _ in range(shape.partitions)]
    following: dict[tuple[int, int], int] = {}
    for step in range(shape.sends):
        producer = rng.randrange(shape.producers)
        transactional = producer % 3 != 2
        lanes = rng.sample(range(shape.partitions), rng.randint(1, min(3, shape.partitions)))
        sent = []
        for lane in lanes:
            first = following.get((producer, lane), shape.first)
            following[producer, lane] = first + rng.randint(1, shape.most)
            sent.append((lane, first, following[producer, lane] - 1))
        end = rng.choice(ENDS) if transactional else rng.choice(("ok", "ok", "fail"))
        history = histories.setdefault(producer, _opening(producer, shape, rng, transactional))
        _write_end(history, producer, step, sent, end)
        visible = end == "ok" or (end == "info" and rng.random() < 0.5)
        for lane, first, last in sent:
            for seq in range(first, last + 1):
                if _chance(rng, flaws, "shown" if not visible else "drop") or (
                    end == "info" and _chance(rng, flaws, "torn")
                ):
                    shown = not visible
                else:
                    shown = visible
                if shown:
                    _show(rng, parts, flaws, Identity(RUN, producer, lane, seq, step, "c"))
    for part in parts:
        for _ in range(int(len(part) * flaws.get("swap", 0))):
            i, j = rng.randrange(len(part)), rng.randrange(len(part))
            part[i], part[j] = part[j], part[i]
    log = Log(shape.partitions)
    for partition, part in enumerate(parts):
        offset = 0
        for value in part:
            log.rows.append((partition, offset, value))
            offset += rng.choice([1, 1, 1, 2])
    encoder = msgspec.json.Encoder()
    files = [HistoryFile(Path(f"p{p}.jsonl"), encoder.encode_lines(lines)) for p, lines in histories.items()]
    observation, foreign = reference(log)
    observation.meta.foreign.count = foreign
    return Case(f"generated {seed}", fold(files), log, observation)


def _chance(rng: random.Random, flaws: dict[str, float], name: str) -> bool:
    return rng.random() < flaws.get(name, 0)


def _show(rng: random.Random, parts: list[list[Value]], flaws: dict[str, float], identity: Identity) -> None:
    value = encode(identity)
    parts[identity.lane].append(value)
    if _chance(rng, flaws, "duplicate"):
        parts[identity.lane].append(value)
    if _chance(rng, flaws, "elsewhere"):
        parts[rng.randrange(len(parts))].append(value)
    if _chance(rng, flaws, "foreign"):
        parts[identity.lane].append(rng.choice([b"junk", None, value.replace(RUN.encode(), b"zzzz9999")]))


def _opening(producer: int, shape: Shape, rng: random.Random, transactional: bool) -> list[dict[str, Any]]:
    clocks = {"mono": 0, "wall": 0}
    opening = {"type": "open", "format": 1, "run": RUN, "client": f"p{producer}", "role": "producer"}
    opening |= {"host": "h", "pid": 1, "clock": "clock"}
    declared: dict[str, Any] = {"type": "producer", "producer": producer}
    declared |= {"lanes": [("t", p) for p in range(shape.partitions)]}
    declared |= {"transactional_id": f"id-{producer}" if transactional else None}
    if not transactional and rng.random() < 0.5:
        declared |= {"idempotent": False, "acks": "1", "in_flight": 5}
    return [{**opening, **clocks}, {**declared, **clocks}]


def _write_end(history: list[dict[str, Any]], producer: int, step: int, sent: Sent, end: str) -> None:
    transactional = history[1]["transactional_id"] is not None
    f = ("abort" if end == "abort" else "commit") if transactional else "send"
    asked: dict[str, Any] = {"type": "invoke", "f": f, "op": step, "producer": producer, "sent": sent}
    if transactional:
        asked["txn"] = step + 1
    answer = {"type": "ok" if end == "abort" else end, "f": f, "op": step}
    history += [{**asked, "mono": step + 1, "wall": 0}, {**answer, "mono": step + 1, "wall": 0}]
