"""Samples of the metrics of brokers and clients during a run, if the scenario sets `verify.metrics`."""

from __future__ import annotations

import threading
import time
from typing import Final

from harness.base.errors import HarnessError, describe_error
from harness.cluster.broker_metrics import BrokerMetrics
from harness.evidence.metric_samples import SampleWriter
from harness.run.fleet import Fleet
from harness.run.program import RunContext

EVERY_S: Final = 2.0
_STOP_LIMIT_S: Final = 30.0


class MetricsCapture:
    """Sampler of the metrics of a run, in a thread of its own.

    A broker that is frozen answers late. It delays neither the other brokers nor the monitor of the run.
    """

    def __init__(self, run: RunContext, fleet: Fleet) -> None:
        self._run = run
        self._fleet = fleet
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples = 0
        self._cpu_s = 0.0
        self._failure = ""

    def start(self) -> None:
        """Start to sample, if the scenario asks for it."""
        if self._run.scenario.verify.metrics:
            self._thread = threading.Thread(target=self._guard, name="metrics", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop to sample, and report the number of samples and their cost."""
        if self._thread is None:
            return
        self._stopped.set()
        self._thread.join(_STOP_LIMIT_S)
        cost = f"{self._samples} samples of the brokers' metrics, {self._cpu_s:.1f} s of processor time"
        detail = f"the metrics end early: {self._failure}" if self._failure else cost
        self._run.events.phase("drain", detail)
        self._thread = None

    def _guard(self) -> None:
        try:
            self._loop()
        except (HarnessError, OSError, ValueError) as error:
            self._failure = describe_error(error)

    def _loop(self) -> None:
        with BrokerMetrics(self._run.cluster) as reader, SampleWriter(self._run.directory.path) as writer:
            while True:
                self._sample(reader, writer)
                self._cpu_s = reader.cpu_seconds
                if self._stopped.wait(EVERY_S):
                    self._sample(reader, writer)
                    return

    def _sample(self, reader: BrokerMetrics, writer: SampleWriter) -> None:
        at = time.monotonic_ns()
        reading = reader.read()
        clients = {client.spec.client: client.progress().statistics() for client in self._fleet.clients}
        writer.write(at, reading.values, clients, reading.problems)
        self._samples += 1
