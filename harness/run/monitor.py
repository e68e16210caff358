"""Monitor of a run: a thread that samples client progress, end offsets and resource use every second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from harness.base.errors import describe_error
from harness.base.events import ClientEnded, Event, ProgressEvent
from harness.cluster.cluster import Cluster
from harness.evidence.history import HistoryWriter
from harness.evidence.observation import Window
from harness.kafka.admin import EARLIEST
from harness.kafka.group_offsets import stable_offsets
from harness.run.fleet import Fleet
from harness.run.resource_usage import APP_MEMORY, ResourceUsage
from harness.run.spark_stream import SparkStream

EVERY_S = 1.0


class Monitor:
    """Sampler that runs once a second during a run.

    It writes the bounds of the partitions and the positions of the groups to the observer's history file. It
    emits the progress of the clients, and each client that ended unexpectedly, as events.
    """

    def __init__(
        self,
        cluster: Cluster,
        fleet: Fleet,
        history: HistoryWriter,
        emit: Callable[[Event], None],
        spark: SparkStream,
        *,
        groups: Sequence[str] = (),
        note_bounds: Callable[[Sequence[Window] | None], None] = lambda _: None,
        app_pids: Callable[[], list[int]] = list,
    ) -> None:
        self.phase = ""
        self.usage = ResourceUsage()
        self.failure = ""
        self.active: list[str] = []
        self.acknowledged_in: dict[str, int] = {}
        self._credited = 0
        self._crediting = threading.Lock()
        self._cluster = cluster
        self._fleet = fleet
        self._history = history
        self._emit = emit
        self._spark = spark
        self._groups = groups
        self._note_bounds = note_bounds
        self._app_pids = app_pids
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="monitor", daemon=True)
        self._acknowledged = 0
        self._sampled_at = time.monotonic()
        self._ended: set[str] = set()

    def enter(self, phase: str) -> None:
        """Begin a phase. Records acknowledged since the last sample count for the previous phase."""
        self._credit(self._fleet.totals().acknowledged)
        self.phase = phase

    def _credit(self, acknowledged: int) -> None:
        with self._crediting:
            gained = max(0, acknowledged - self._credited)
            self._credited += gained
            self.acknowledged_in[self.phase] = self.acknowledged_in.get(self.phase, 0) + gained

    def start(self) -> None:
        """Start the thread that takes the samples."""
        self._thread.start()

    def stop(self, *, last_sample: bool = False) -> None:
        """Stop sampling. With `last_sample`, take one final sample after the sampling thread has ended."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(30)
        if last_sample:
            self._guard(self._report_progress)

    def _loop(self) -> None:
        while not self._stopped.wait(EVERY_S) and not self.failure:
            self._guard(self._sample)

    def _guard(self, step: Callable[[], None]) -> None:
        """Carry out a step. Keep the first error in `failure`: a run without samples must not be valid."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the samples are missing
            self.failure = self.failure or describe_error(error)

    def _sample(self) -> None:
        self._report_progress()
        clients = [client.pid for client in self._fleet.active()]
        self.usage.sample(
            {"the largest client": clients, APP_MEMORY: self._app_pids(), "Spark's driver": self._spark.pids}
        )
        if self.phase != "drain":  # the run itself stops the clients in the drain phase
            self._report_ended_clients()

    def _report_ended_clients(self) -> None:
        for client in self._fleet.ended():
            name = client.spec.client
            if name not in self._ended:
                self._ended.add(name)
                last_line = "".join(client.log().strip().splitlines()[-1:])
                self._emit(ClientEnded(client=name, exit_code=client.exit_code(), last_line=last_line))

    def _report_progress(self) -> None:
        totals = self._fleet.totals()
        now = time.monotonic()
        bounds = self._sample_offsets()
        self._note_bounds(bounds)
        gained = totals.acknowledged - self._acknowledged
        self._credit(totals.acknowledged)
        if not self._stopped.is_set():
            self._spark.restart_if_dead()
        spark, spark_behind = self._spark.progress(bounds)
        self._emit(
            ProgressEvent(
                phase=self.phase,
                acknowledged=totals.acknowledged,
                rate=gained / (now - self._sampled_at),
                committed=totals.committed,
                aborted=totals.aborted,
                unknown=totals.unknown,
                in_flight=totals.in_flight,
                active=list(self.active),
                # The high watermark and the last stable offset come from separate requests. After a
                # fail-over, the high watermark may therefore be lower than the last stable offset. This is no
                # lag, so report 0.
                lso_lag=None if bounds is None else max([0, *(w.hw - w.lso for w in bounds)]),
                spark=spark,
                spark_behind=spark_behind,
                isr=self._smallest_isr(),
            )
        )
        self._acknowledged, self._sampled_at = totals.acknowledged, now

    def _smallest_isr(self) -> int | None:
        try:
            partitions = self._cluster.admin.metadata(list(self._fleet.topics)).partitions
        except (OSError, EOFError):
            return None
        return min((len(partition.isr) for partition in partitions), default=None)

    def _sample_offsets(self) -> list[Window] | None:
        """Record and return the bounds of every partition; return None if a leader does not answer."""
        asked = time.monotonic_ns()
        bounds = []
        try:
            for topic in self._fleet.topics:
                starts = self._cluster.admin.list_offsets(topic, EARLIEST)
                ends = self._cluster.end_offsets(topic)
                bounds += [
                    (topic, p, starts[p], end.last_stable, end.high_watermark)
                    for p, end in ends.items()
                    if p in starts
                ]
        except (OSError, EOFError):
            return None
        self._history.sample(bounds, asked=asked)
        self._sample_groups()
        return [Window(topic, p, start, lso, hw, lso) for topic, p, start, lso, hw in bounds]

    def _sample_groups(self) -> None:
        """Record the committed positions of every group, unless an open transaction has pending positions."""
        for group in self._groups:
            asked = time.monotonic_ns()
            try:
                offsets = stable_offsets(self._cluster.admin, group)
            except (OSError, EOFError):
                continue
            if offsets:
                positions = [(*place, offset) for place, offset in sorted(offsets.items())]
                self._history.sample(group=group, positions=positions, asked=asked)
