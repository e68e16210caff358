"""What the brokers' own logs tell of a run: read with consent alone, and kept of what is ours alone.

The coordinators note the ends of transactions and the positions of groups in two topics that belong to
everybody. Of these only what a run has added is read, in the partitions of its own ids and groups; what is
passed over on the way is kept nowhere. The verdict does not depend on it: clients and topics tell enough,
and whatever goes wrong here is told as what is not shown.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from harness.base.errors import HarnessError, describe_error
from harness.cluster.external.cluster_file import NODE_LOGS, OFFSETS_LOG, TRANSACTION_LOG
from harness.cluster.external.external_cluster import ExternalCluster
from harness.cluster.external.external_nodes import AuditedNode
from harness.evidence.run_directory import write_atomic
from harness.kafka.connection import KafkaAnswerError
from harness.run.run_names import transactional_id
from harness.scenario import Scenario
from harness.tap.coordinator_entries import java_hash
from harness.witness.coordinator_log import Added, positions, states
from harness.witness.plain_consumer import Place

NAME: Final = "logs.json"
WHAT: Final = {
    TRANSACTION_LOG: "what the coordinators noted of its transactions",
    OFFSETS_LOG: "what the coordinators noted of its groups' positions",
    NODE_LOGS: "what the brokers have logged",
}
READ_S: Final = 30.0
"""For one topic: on a busy cluster others add to the same partitions."""
_NO_TOPIC: Final = 3


class LogEvidence:
    """Notes where the logs end before a run, and reads after it what was added of ours."""

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
        # Where each log ended before the run, or why nobody knows; nothing of a topic that was not there.
        self._starts: dict[str, dict[Place, int] | str] = {}

    def begin(self) -> None:
        """Note where those logs end that may be read."""
        for log in self._wanted():
            try:
                self._starts[log] = self._ends(log)
            except Exception as error:  # noqa: BLE001  # a run does not need it: told when it would be read
                self._starts[log] = f"where it ended before the run is not known: {describe_error(error)}"

    def collect(self, run: Path) -> None:
        """Write what may be read into the run's directory, and what may not, by name."""
        shown, missing = [], []
        for log, what in WHAT.items():
            if log not in self._cluster.file.evidence.logs:
                if log == NODE_LOGS or self._names[log]:
                    missing.append(f"{what} ({log}): evidence.logs of the cluster's file does not have it")
            elif log == NODE_LOGS:
                nodes = [n for n in self._cluster.nodes.values() if isinstance(n, AuditedNode)]
                if read := ", ".join(f"logs/{node.name}.log" for node in nodes if not node.log_unread):
                    shown.append(f"{what}: {read}")
                missing += [f"{what} ({node.name}): {node.log_unread}" for node in nodes if node.log_unread]
            elif self._names[log]:
                try:
                    shown.append(f"{what}: {self._lines(log, run / 'logs' / f'{log}.jsonl')}")
                except Exception as error:  # noqa: BLE001  # the verdict is there, and nothing here may lose it
                    missing.append(f"{what} ({log}): {describe_error(error)}")
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
        starts = self._starts[log]
        if isinstance(starts, str):
            raise HarnessError(starts, "a log of everybody is read from where it ended, or not at all")
        ends = self._ends(log)
        if starts and starts.keys() != ends.keys():
            raise HarnessError("it has another number of partitions than before the run", "run again")
        spans = {place: (starts.get(place, 0), end) for place, end in ends.items()}
        told = [f"{p} from {start} to {end}" for (_, p), (start, end) in spans.items()]
        self._cluster.audit.note("read", log=log, partitions=told)
        deadline = time.monotonic() + READ_S
        found = [Added(self._cluster.admin, place, *span, deadline) for place, span in spans.items()]
        lines = [{"partition": added.place[1]} | line for added in found for line in self._told(log, added)]
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        kinds = Counter(line.get("state") or f"position ({line['transaction']})" for line in lines)
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing"
        cut = "".join(f"; {added.cut}" for added in found if added.cut)
        return f"{counted}, in {len(spans)} partitions (logs/{path.name}){cut}"

    def _told(self, log: str, added: Added) -> list[dict[str, Any]]:
        if log == OFFSETS_LOG:
            return [asdict(position) for position in positions(added, self._names[log])]
        return [
            {
                "offset": entry.offset,
                "at_ms": entry.at_ms,
                "transactional_id": ident,
                "state": noted.state,
                "producer_id": noted.producer_id,
                "epoch": noted.epoch,
                "places": noted.places,
            }
            for entry, ident, noted in states(added, self._names[log])
        ]
