"""What the brokers' own logs tell of a run: read with consent alone, and kept of what is ours alone.

The coordinators note the ends of transactions and the positions of groups in two topics that belong to
everybody. Of these only what a run has added is read, in the partitions of its own ids and groups; what is
passed over on the way is kept nowhere. The verdict does not depend on it: clients and topics tell enough.
"""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from harness.cluster.live.cluster import LiveCluster
from harness.cluster.live.file import NODE_LOGS, OFFSETS_LOG, TRANSACTION_LOG
from harness.errors import HarnessError
from harness.run.scope import transactional_id
from harness.scenario import Scenario
from harness.store import write_atomic
from harness.tap.logsteps import java_hash
from harness.wire.observer import Place
from harness.wire.protocol import KafkaAnswerError
from harness.wire.rawlog import fetch_request, fetched
from harness.wire.txnlog import decode_state

NAME: Final = "logs.json"
WHAT: Final = {
    TRANSACTION_LOG: "what the coordinators noted of its transactions",
    OFFSETS_LOG: "what the coordinators noted of its groups' positions",
    NODE_LOGS: "what the brokers have logged",
}
READ_S: Final = 30.0
"""For one topic: on a busy cluster others add to the same partitions."""
_POSITION_KEYS: Final = (0, 1)
# A position's value, in every version: version, offset.
_POSITION: Final = struct.Struct(">hq")
_NO_TOPIC: Final = 3


class LogEvidence:
    """Notes where the logs end before a run, and reads after it what was added of ours."""

    def __init__(self, cluster: LiveCluster, scenario: Scenario) -> None:
        self._cluster = cluster
        self._names = {
            TRANSACTION_LOG: [
                transactional_id(w.topic, index)
                for w in scenario.workload
                if w.kind == "transactional" or (w.kind == "pipeline" and w.transactions)
                for index in range(1, w.clients + 1)
            ],
            OFFSETS_LOG: sorted({w.group for w in scenario.workload if w.group}),
        }
        self._starts: dict[Place, int] = {}
        self._read = {TRANSACTION_LOG: self._transactions, OFFSETS_LOG: self._positions}

    def begin(self) -> None:
        """Note where those logs end that may be read."""
        for log in self._wanted():
            with suppress(HarnessError, OSError, EOFError):  # told when it is read
                self._starts |= self._ends(log)

    def collect(self, run: Path) -> None:
        """Write what may be read into the run's directory, and what may not, by name."""
        shown, missing = [], []
        for log, what in WHAT.items():
            if log not in self._cluster.file.evidence.logs:
                if log == NODE_LOGS or self._names[log]:
                    missing.append(f"{what} ({log}): evidence.logs of the cluster's file does not have it")
            elif log == NODE_LOGS:
                shown.append(f"{what}: logs/*.log")
            elif self._names[log]:
                try:
                    shown.append(f"{what}: {self._lines(log, run / 'logs' / f'{log}.jsonl')}")
                except (HarnessError, OSError, EOFError) as error:
                    missing.append(f"{what} ({log}): {error}")
        write_atomic(run / NAME, json.dumps({"shown": shown, "not_shown": missing}, indent=1).encode())

    def _wanted(self) -> list[str]:
        return [
            log for log, names in self._names.items() if names and log in self._cluster.file.evidence.logs
        ]

    def _ends(self, log: str) -> dict[Place, int]:
        """Where the partitions of our names end; none while nobody has made the topic yet."""
        try:
            ends = self._cluster.admin.end_offsets(log)
        except KafkaAnswerError as error:
            if error.code == _NO_TOPIC:
                return {}
            raise
        mine = {java_hash(name) % len(ends) for name in self._names[log]}
        return {(log, partition): ends[partition].high_watermark for partition in sorted(mine)}

    def _lines(self, log: str, path: Path) -> str:
        ends = self._ends(log)
        places = [f"{p} from {self._starts.get((log, p), 0)} to {end}" for (log, p), end in ends.items()]
        self._cluster.audit.note("read", log=log, partitions=places)
        lines, deadline = [], time.monotonic() + READ_S
        for place, end in ends.items():
            for offset, record, batch in self._records(place, end, deadline):
                if line := self._read[log](record, batch):
                    lines.append({"partition": place[1], "offset": offset, "at_ms": record.timestamp} | line)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        told = Counter(line.get("state", "position") for line in lines)
        cut = (
            "" if time.monotonic() < deadline else f"; not read to the end, which took more than {READ_S:g} s"
        )
        counted = ", ".join(f"{count} {state}" for state, count in sorted(told.items())) or "nothing"
        return f"{counted}, in {len(ends)} partitions (logs/{path.name}){cut}"

    def _records(self, place: Place, end: int, deadline: float) -> Iterator[tuple[int, Any, Any]]:
        from kafka.record.memory_records import MemoryRecords

        offset, admin = self._starts.get(place, 0), self._cluster.admin
        leader = admin.partition(*place).leader
        while offset < end and time.monotonic() < deadline:
            found = fetched(admin.call(leader, fetch_request(place, offset, 0)), place, offset)
            before = offset
            for batch in MemoryRecords(bytes(found.records or b"")):
                for record in () if batch.is_control_batch else batch:
                    if offset <= record.offset < end:
                        yield record.offset, record, batch
                offset = max(offset, batch.last_offset + 1)
            if offset == before:
                return

    def _transactions(self, record: Any, _batch: Any) -> dict[str, Any] | None:
        ident = bytes(record.key)[4:].decode()
        if ident not in self._names[TRANSACTION_LOG] or record.value is None:
            return None
        noted = decode_state(bytes(record.value))
        return {
            "transactional_id": ident, "state": noted.state, "producer_id": noted.producer_id,
            "epoch": noted.epoch, "places": noted.places,
        }  # fmt: skip

    def _positions(self, record: Any, batch: Any) -> dict[str, Any] | None:
        key = bytes(record.key)
        if int.from_bytes(key[:2], "big") not in _POSITION_KEYS or record.value is None:
            return None
        group, rest = _text(key[2:])
        if group not in self._names[OFFSETS_LOG]:
            return None
        topic, rest = _text(rest)
        return {
            "group": group, "topic": topic, "of": int.from_bytes(rest[:4], "big"),
            "position": _POSITION.unpack_from(bytes(record.value))[1], "producer_id": batch.producer_id,
            "epoch": batch.producer_epoch,
        }  # fmt: skip


def _text(data: bytes) -> tuple[str, bytes]:
    length = int.from_bytes(data[:2], "big")
    return data[2 : 2 + length].decode(), data[2 + length :]
