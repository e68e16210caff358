"""Looks at a run about once a second: what the clients did, where the logs end; in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from harness.base.events import ClientEnded, ProgressEvent
from harness.cluster.cluster import Cluster
from harness.evidence.history import HistoryWriter
from harness.evidence.observation import Window
from harness.run.fleet import Fleet
from harness.run.resource_usage import ResourceUsage
from harness.run.verification import Verification
from harness.witness.spark.stream_supervisor import StreamProgress as Seen

EVERY_S = 1.0
SILENT_S = 10.0
"""A batch takes a second or two: longer without one, where there is something to read, is worth a word."""


class Monitor:
    """Writes samples of offsets into the observer's history, and tells progress and unexpected ends."""

    def __init__(
        self,
        cluster: Cluster,
        fleet: Fleet,
        history: HistoryWriter,
        tell: Callable[[ProgressEvent | ClientEnded], None],
        verification: Verification,
    ) -> None:
        self.phase = ""
        self.cost = ResourceUsage()
        self.active: list[str] = []
        self.acknowledged_in: dict[str, int] = {}
        self._credited = 0
        self._crediting = threading.Lock()
        self._cluster = cluster
        self._fleet = fleet
        self._history = history
        self._tell = tell
        self._verification = verification
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="watch", daemon=True)
        self._acknowledged = 0
        self._looked_at = time.monotonic()
        self._ended: set[str] = set()

    def enter(self, phase: str) -> None:
        """Another phase begins; what was done since the last look belongs to the one before."""
        self._credit(self._fleet.totals().acknowledged)
        self.phase = phase

    def _credit(self, acknowledged: int) -> None:
        """Note what is acknowledged now, and was not before, for the phase that the run is in."""
        with self._crediting:
            gained = max(0, acknowledged - self._credited)
            self._credited += gained
            self.acknowledged_in[self.phase] = self.acknowledged_in.get(self.phase, 0) + gained

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self, *, last_look: bool = False) -> None:
        """Look no more; with `last_look` the histories end with where everything stands now."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(30)
        if last_look:
            self._progress()

    def _loop(self) -> None:
        while not self._over.wait(EVERY_S):
            self._look()

    def _look(self) -> None:
        self._progress()
        live = self._verification.live
        driver = [live.pid] if live is not None and live.pid is not None else []
        clients = [client.pid for client in self._fleet.live()]
        self.cost.look({"the largest client": clients, "Spark's live job": driver})
        if self.phase == "drain":
            return  # they end because they were asked to
        for client in self._fleet.ended():
            if client.spec.client not in self._ended:
                self._ended.add(client.spec.client)
                said = client.log().strip().splitlines()[-1:]
                self._tell(
                    ClientEnded(client=client.spec.client, exit_code=client.exit_code(), said="".join(said))
                )

    def _progress(self) -> None:
        totals = self._fleet.totals()
        now = time.monotonic()
        bounds = self._sample()
        gained = totals.acknowledged - self._acknowledged
        self._credit(totals.acknowledged)
        self._tell(
            ProgressEvent(
                phase=self.phase,
                acknowledged=totals.acknowledged,
                rate=gained / (now - self._looked_at),
                committed=totals.committed,
                aborted=totals.aborted,
                unknown=totals.unknown,
                in_flight=totals.in_flight,
                active=list(self.active),
                # Asked for one after the other: records that came between them are no lag.
                lso_lag=None if bounds is None else max([0, *(w.hw - w.lso for w in bounds)]),
                spark=self._spark(bounds),
                isr=self._fewest_in_sync(),
            )
        )
        self._acknowledged, self._looked_at = totals.acknowledged, now

    def _spark(self, bounds: list[Window] | None) -> str:
        """What Spark has counted so far; a driver that died is started again from its checkpoint."""
        live = self._verification.live
        if live is None:
            return ""
        if not self._over.is_set():
            live.watch()
        said = live.progress(ask_brokers=False, bounds=bounds)
        return describe(said) if said else "starting"

    def _fewest_in_sync(self) -> int | None:
        try:
            found = self._cluster.admin.metadata(list(self._fleet.topics)).partitions
        except (OSError, EOFError):
            return None
        return min((len(partition.isr) for partition in found), default=None)

    def _sample(self) -> list[Window] | None:
        """Note where every partition ends; None while no broker can say."""
        bounds = []
        try:
            for topic in self._fleet.topics:
                ends = self._cluster.end_offsets(topic)
                bounds += [(topic, p, 0, end.last_stable, end.high_watermark) for p, end in ends.items()]
        except (OSError, EOFError):
            return None  # brokers are away: that there is no sample is what there is to say
        self._history.sample(bounds)
        return [Window(topic, p, start, lso, hw, lso) for topic, p, start, lso, hw in bounds]


def describe(said: Seen) -> str:
    """Say in one phrase how far Spark is, what it has found so far, and whether it had to begin anew."""
    parts = [f"{said.records} read ({said.rows_per_s:.0f}/s)"]
    if said.lag is None or (said.lag.behind_stable and said.silent_s > SILENT_S):
        parts.append(f"nothing new for {said.silent_s:.0f} s")
    if said.lag is not None:
        parts.append(f"{said.lag.behind_stable} behind")
    parts.append(f"{said.duplicates} duplicates, {said.aborted_intent} aborted")
    if said.restarts:
        parts.append(f"begun anew {said.restarts} times from its checkpoint")
    return ", ".join(parts)
