"""Capture of the records that a run on an external cluster causes in two internal Kafka topics.

Transaction coordinators write to `__transaction_state`, and group coordinators write to `__consumer_offsets`.
All users of the cluster share these topics. The harness reads a topic only if `evidence.logs` in the cluster
file lists it. It reads only records that were added during the run, in the partitions that hold the run's
transactional ids and groups. It skips the records of other users and does not store them. The verdict does
not depend on these topics. If a topic cannot be read, the report lists it as missing evidence.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from harness.base.errors import HarnessError, describe_error
from harness.base.partition_id import PartitionId
from harness.cluster.external.cluster_file import NODE_LOGS, OFFSETS_LOG, TRANSACTION_LOG
from harness.cluster.external.external_cluster import ExternalCluster
from harness.cluster.external.external_nodes import AuditedNode
from harness.evidence.run_directory import write_atomic
from harness.kafka.coordinators import java_hash
from harness.kafka.errors import ErrorCode, KafkaAnswerError
from harness.kafka.log.coordinator_log import AddedEntries, decode_positions, decode_states
from harness.run.run_names import transactional_id
from harness.scenario import Scenario

NAME: Final = "logs.json"
WHAT: Final = {
    TRANSACTION_LOG: "coordinator entries of its transactions",
    OFFSETS_LOG: "coordinator entries of its groups' positions",
    NODE_LOGS: "the brokers' logs",
}
READ_S: Final = 30.0
"""Time limit in seconds for reading one of the two internal topics. Other users may have written many
records to the same partitions.
"""


class LogEvidence:
    """Reader of the run's records in the internal topics that all users of the cluster share.

    Before the run, it records the end offsets of these topics. After the run, it reads from those offsets.
    """

    def __init__(self, cluster: ExternalCluster, scenario: Scenario) -> None:
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
        # For each internal topic: its end offsets before the run, or the reason why they are unknown. The
        # dict of offsets is empty if the topic did not exist.
        self._starts: dict[str, dict[PartitionId, int] | str] = {}

    def begin(self) -> None:
        """Record the end offsets of the internal topics that the cluster file allows the harness to read."""
        for log in self._wanted():
            try:
                self._starts[log] = self._ends(log)
            except Exception as error:  # noqa: BLE001  # `collect` reports this error
                self._starts[log] = f"its end offset before the run is unknown: {describe_error(error)}"

    def collect(self, run: Path) -> None:
        """Write the run's records from the internal topics into the run directory.

        Also write logs.json, which lists the captured evidence and the evidence that could not be read.
        """
        shown, missing = [], []
        for log, what in WHAT.items():
            if log not in self._cluster.file.evidence.logs:
                if log == NODE_LOGS or self._names[log]:
                    missing.append(f"{what} ({log}): evidence.logs in the cluster file does not list it")
            elif log == NODE_LOGS:
                nodes = [n for n in self._cluster.nodes.values() if isinstance(n, AuditedNode)]
                if read := ", ".join(f"logs/{node.name}.log" for node in nodes if not node.log_unread):
                    shown.append(f"{what}: {read}")
                missing += [f"{what} ({node.name}): {node.log_unread}" for node in nodes if node.log_unread]
            elif self._names[log]:
                try:
                    shown.append(f"{what}: {self._lines(log, run / 'logs' / f'{log}.jsonl')}")
                except Exception as error:  # noqa: BLE001  # an error must not lose the verdict
                    missing.append(f"{what} ({log}): {describe_error(error)}")
        write_atomic(run / NAME, json.dumps({"shown": shown, "not_shown": missing}, indent=1).encode())

    def _wanted(self) -> list[str]:
        return [
            log for log, names in self._names.items() if names and log in self._cluster.file.evidence.logs
        ]

    def _ends(self, log: str) -> dict[PartitionId, int]:
        """Return the end offsets of the topic's partitions that hold the run's transactional ids or groups.

        The result is empty if the topic does not exist.
        """
        try:
            ends = self._cluster.admin.end_offsets(log)
        except KafkaAnswerError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return {}
            raise
        mine = {java_hash(name) % len(ends) for name in self._names[log]}
        return {(log, partition): ends[partition].high_watermark for partition in sorted(mine)}

    def _lines(self, log: str, path: Path) -> str:
        starts = self._starts[log]
        if isinstance(starts, str):
            raise HarnessError(
                starts, "a shared log is read from its end offset before the run, or not at all"
            )
        ends = self._ends(log)
        if starts and starts.keys() != ends.keys():
            raise HarnessError("its number of partitions changed during the run", "run again")
        spans = {place: (starts.get(place, 0), end) for place, end in ends.items()}
        read = [f"{p} from {start} to {end}" for (_, p), (start, end) in spans.items()]
        self._cluster.audit.note("read", log=log, partitions=read)
        deadline = time.monotonic() + READ_S
        found = [AddedEntries(self._cluster.admin, place, *span, deadline) for place, span in spans.items()]
        lines = [
            {"partition": added.partition_id[1]} | line
            for added in found
            for line in self._entries(log, added)
        ]
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        kinds = Counter(line.get("state") or f"position ({line['transaction']})" for line in lines)
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing"
        cut = "".join(f"; {added.cut}" for added in found if added.cut)
        return f"{counted}, in {len(spans)} partitions (logs/{path.name}){cut}"

    def _entries(self, log: str, added: AddedEntries) -> list[dict[str, Any]]:
        if log == OFFSETS_LOG:
            return [asdict(position) for position in decode_positions(added, self._names[log])]
        return [
            {
                "offset": entry.offset,
                "at_ms": entry.at_ms,
                "transactional_id": ident,
                "state": noted.state,
                "producer_id": noted.producer_id,
                "epoch": noted.epoch,
                "places": noted.partitions,
            }
            for entry, ident, noted in decode_states(added, self._names[log])
        ]
