"""The client processes of a run: created from the scenario, started, replaced after a crash, stopped."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from harness.base.errors import UsageError, WaitTimeoutError
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.clients.client_process import ClientProcess
from harness.clients.client_spec import (
    ALONE,
    BaseSpec,
    IdempotentSpec,
    PipelineSpec,
    ReaderSpec,
    SeederSpec,
    TransactionalSpec,
)
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.client_list import ClientListWriter, End
from harness.run.run_names import transactional_id
from harness.scenario import Scenario, Workload
from harness.scenario.app_parts import InputPart

FIRST_PROGRESS_LIMIT_S = 60.0


@dataclass
class FleetTotals:
    """Numbers of records and transactions, summed over all clients of a run."""

    acknowledged: int = 0
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    in_flight: int = 0


@dataclass
class Fleet:
    """All client processes of one run, including those that crashed and were replaced."""

    cluster: Cluster
    scenario: Scenario
    run_id: str
    seed: int
    histories: Path
    folder: Path
    client_list: ClientListWriter
    listener: BrokerListener = BrokerListener.PROXIED
    clients: list[ClientProcess] = field(default_factory=list)
    _replaced: set[str] = field(default_factory=set)

    @property
    def topics(self) -> dict[str, int]:
        """Every topic that the clients write, with its number of partitions."""
        written = {w.topic: w.partitions for w in self.scenario.workload if w.kind != "reader"}
        written |= self.scenario.app_topics
        return written | {log: written[source] for log, source in self.scenario.changelogs.items()}

    def start(self) -> None:
        """Start every client of the scenario."""
        for workload in self.scenario.workload:
            for index in range(1, workload.clients + 1):
                self._start(
                    self._spec(workload, f"{workload.kind}-{self._short(workload.topic)}-{index}", index)
                )

        for part in self.scenario.input:
            self._start(self._seeder(part, f"seeder-{self._short(part.topic)}-1"))

    def _seeder(self, part: InputPart, name: str) -> BaseSpec:
        return SeederSpec(
            **self._common(name),
            topic=part.topic,
            partitions=part.partitions,
            rate=part.rate,
            keys=part.keys,
            key=part.key,
            value=part.value,
            headers=part.headers,
            encoder=part.encoder,
            encoder_command=part.encoder_command,
            folder=self.scenario.app.directory if self.scenario.app else ".",
            transactional_id=f"{part.topic.removesuffix(f'.{self.run_id}')}-1.{self.run_id}",
            transaction_timeout_ms=round(part.transaction_timeout * 1000),
            records=part.transaction,
            abort_share=part.aborted,
            seed=self.seed,
        )

    def _short(self, topic: str) -> str:
        """Return the name that the topic has in the scenario.

        Client names contain it, and a target `client(PATTERN)` is matched with client names.
        """
        return topic.removeprefix(self.cluster.prefix).removesuffix(f".{self.run_id}")

    def active(self) -> list[ClientProcess]:
        """Return the clients that should be running: started, and not crashed by a fault."""
        return [client for client in self.clients if client.spec.client not in self._replaced]

    def wait_progress(self, enough: Callable[[], bool], limit: float = FIRST_PROGRESS_LIMIT_S) -> None:
        """Wait until every active client has made progress since this call.

        The wait also ends when `enough` returns True.
        """
        before = {client.spec.client: _done(client) for client in self.active()}

        def behind() -> list[str]:
            return [name for name, done in before.items() if _done(self._by_name(name)) <= done]

        def resumed() -> bool:
            if enough() or (self._check_alive() and not (waiting := behind())):
                return True
            raise ConnectionError(f"no progress of {', '.join(waiting)}")

        wait_until(
            resumed,
            limit,
            "every client to make progress",
            every=0.2,
            hint=f"read the logs of the clients in {self.folder}",
        )

    def ended(self) -> Iterator[ClientProcess]:
        """Return the active clients whose process has ended."""
        return (client for client in self.active() if client.exit_code() is not None)

    def totals(self) -> FleetTotals:
        """Return the numbers of records and transactions, summed over all clients, even those that crashed.

        The number of records in flight includes only the active clients.
        """
        totals, active = FleetTotals(), self.active()
        for client in self.clients:
            progress = client.progress()
            totals.acknowledged += progress.acknowledged
            totals.committed += progress.committed
            totals.aborted += progress.aborted
            totals.unknown += progress.unknown
            totals.in_flight += progress.in_flight if client in active else 0
        return totals

    def choose(self, pattern: str, seed: int) -> ClientProcess:
        """Return a running client whose name matches `pattern`.

        If several match, `seed` determines the choice.
        """
        running = [
            client
            for client in self.active()
            if fnmatchcase(client.spec.client, pattern) and client.state() is ProcessState.RUNNING
        ]
        if not running:
            names = ", ".join(client.spec.client for client in self.active())
            raise UsageError(f"no running client matches {pattern!r}", f"the clients are {names}")
        return random.Random(seed).choice(sorted(running, key=lambda client: client.spec.client))

    def note_fault(self, client: ClientProcess, fault_id: str) -> None:
        """Record that a fault of the run has ended a client."""
        self._note_end(client, "by a fault", fault_id)

    def replace(self, crashed: ClientProcess) -> None:
        """Start a successor of a crashed client: a new process with the same transactional id or group.

        Wait until the successor has opened its history. A client fault that hit it earlier would leave a
        client without a history, and the run would be unknown.
        """
        self._replaced.add(crashed.spec.client)
        base = crashed.spec.client.split("~")[0]
        count = sum(name.split("~")[0] == base for name in self._replaced)
        number = max(client.spec.number for client in self.clients) + 1
        history = self.histories / f"{base}~{count}.jsonl"
        successor = self._start(
            msgspec.structs.replace(
                crashed.spec, client=f"{base}~{count}", number=number, history=str(history)
            )
        )
        wait_until(
            lambda: history.exists() or successor.exit_code() is not None,
            FIRST_PROGRESS_LIMIT_S,
            f"client {successor.spec.client} to open its history",
            hint=f"read its log {successor.folder / 'log'}",
        )

    def stop(self, *, readers: bool) -> list[ClientProcess]:
        """Ask all readers, or all other clients, in parallel to finish and stop.

        Kill a client that does not stop in time. Return the clients that did not exit with code 0.
        """
        active = [client for client in self.active() if (client.spec.kind == "reader") is readers]
        if not active:
            return []
        with ThreadPoolExecutor(len(active)) as pool:
            return [
                client for client, code in zip(active, pool.map(self._stop, active), strict=True) if code != 0
            ]

    def kill(self) -> None:
        """Kill every client of the run that is still running."""
        for client in self.clients:
            self._note_end(client, "killed" if client.kill() else "by itself")

    def _stop(self, client: ClientProcess) -> int | None:
        if client.exit_code() is not None:
            self._note_end(client, "by itself")
            return client.exit_code()
        try:
            code = client.stop()
        except WaitTimeoutError:
            client.kill()
            self._note_end(client, "killed")
            return None
        self._note_end(client, "stopped")
        return code

    def _note_end(self, client: ClientProcess, how: End, fault_id: str = "") -> None:
        self.client_list.end(
            client.spec.client,
            how,
            exit_code=client.exit_code(),
            fault=fault_id,
            last_line=client.last_line(),
        )

    def _start(self, spec: BaseSpec) -> ClientProcess:
        self.client_list.add(spec.client, spec.kind, spec.number)
        client = ClientProcess(spec, self.folder / spec.client)
        client.start()
        self.clients.append(client)
        return client

    def _by_name(self, name: str) -> ClientProcess:
        return next(client for client in self.clients if client.spec.client == name)

    def _check_alive(self) -> bool:
        for client in self.ended():
            raise UsageError(
                f"client {client.spec.client} ended with {client.exit_code()}: {client.log()[-300:].strip()}",
                f"read its log {client.folder / 'log'}",
            )
        return True

    def _common(self, name: str) -> dict[str, Any]:
        """Return the fields that the specs of all clients share."""
        return {
            "run": self.run_id,
            "client": name,
            "number": len(self.clients) + 1,
            "bootstrap": self.cluster.bootstrap(self.listener),
            "history": str(self.histories / f"{name}.jsonl"),
            # Each client has a time limit, so that a killed harness does not leave clients running forever.
            "seconds": self.cluster.longest_s,
            "security": self.cluster.security,
            "alone": f"{self.cluster.prefix}{ALONE}",
        }

    def _spec(self, workload: Workload, name: str, index: int) -> BaseSpec:
        common = self._common(name)
        common |= {"settings": workload.settings, "planted_bug": workload.planted_bug}
        if workload.changelog:
            partitions = self.topics[workload.changelog]
            common |= {"changelog": workload.changelog, "changelog_partitions": partitions}
        return _SPECS[workload.kind](
            workload, common, transactional_id(workload.topic, index), self.seed + common["number"]
        )


def _done(client: ClientProcess) -> int:
    progress = client.progress()
    # Do not count the records that a pipeline has read: it may not have written their outputs yet.
    read = progress.read if client.spec.kind == "reader" else 0
    return progress.acknowledged + progress.committed + read


def _idempotent(w: Workload, common: dict[str, Any], _id: str, _seed: int) -> BaseSpec:
    return IdempotentSpec(
        **common,
        topic=w.topic,
        partitions=w.partitions,
        rate=w.rate,
        burst=w.burst,
        payload=int(w.payload),
        idempotence=w.idempotence,
    )


def _transactional(w: Workload, common: dict[str, Any], transactional_id: str, seed: int) -> BaseSpec:
    return TransactionalSpec(
        **common,
        topic=w.topic,
        partitions=w.partitions,
        rate=w.rate,
        payload=int(w.payload),
        transactional_id=transactional_id,
        transaction_timeout_ms=round(w.transaction_timeout * 1000),
        records=w.transaction,
        abort_share=w.abort_share,
        end_discipline=w.end_discipline,
        delivery_limit_s=float(w.delivery_limit),
        seed=seed,
    )


def _pipeline(w: Workload, common: dict[str, Any], transactional_id: str, seed: int) -> BaseSpec:
    return PipelineSpec(
        **common,
        source=w.source,
        group=w.group,
        sink=w.topic,
        partitions=w.partitions,
        transactional_id=transactional_id if w.transactions else None,
        transaction_timeout_ms=round(w.transaction_timeout * 1000),
        records=w.transaction,
        abort_share=w.abort_share,
        group_metadata=w.group_metadata,
        protocol=w.protocol,
        end_discipline=w.end_discipline,
        work=float(w.work),
        positions=w.positions,
        seed=seed,
    )


def _reader(w: Workload, common: dict[str, Any], _id: str, _seed: int) -> BaseSpec:
    return ReaderSpec(**common, topics=[w.topic], group=w.group or None, isolation=w.isolation)


_SPECS = {
    "idempotent": _idempotent,
    "transactional": _transactional,
    "pipeline": _pipeline,
    "reader": _reader,
}
