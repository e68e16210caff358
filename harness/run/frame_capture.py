"""Capture of the Kafka frames of a run by the wire tap.

When the capture ends, the harness also reads events from the brokers' partitions that no client's frame
contains, such as transaction markers. It stores these events in the run directory too.
"""

from __future__ import annotations

import time
from pathlib import Path

from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.run_directory import RunDirectory
from harness.run.fleet import Fleet
from harness.scenario import Scenario, make_fault
from harness.tap import coordinator_entries
from harness.tap.tap_client import LOG_NAME, running_taps

FRAME_SUFFIX = "_frame"
"""Suffix of the names of all faults on single frames."""


class FrameCapture:
    """Wire tap of a run.

    It is used only if the scenario has frame faults, sets `verify.frames`, or if something must be learned
    from the frames of an application.
    """

    def __init__(self, cluster: Cluster, scenario: Scenario, directory: RunDirectory) -> None:
        self._cluster = cluster
        self._directory = directory
        touched = any(entry.fault.endswith(FRAME_SUFFIX) for entry in scenario.fault)
        learned = any(make_fault(entry).needs_frames for entry in scenario.fault)
        app = scenario.app
        # The sockets of a container cannot be read by every user, and the processes of an application that
        # already runs are not known. So their frames have to show a bypass.
        watched = app is not None and (app.ready.fetch or app.in_container or app.running)
        self._wanted = touched or learned or watched or scenario.verify.frames
        self._since = 0

    def start(self, fleet: Fleet) -> None:
        """Start the tap and its frame log. Clients that start afterwards connect through the tap."""
        if self._wanted:
            self._since = time.time_ns()
            for tap in running_taps(self._cluster):
                tap.log_to(self._directory.path)
            fleet.listener = BrokerListener.TAPPED

    @property
    def log_path(self) -> Path | None:
        """Path of the frame log; None if this run has none."""
        return self._directory.path / LOG_NAME if self._since else None

    def stop(self, fleet: Fleet) -> None:
        """Stop the frame log.

        Then read events that no client's frame contains, such as transaction markers, from the brokers'
        partitions, and write them into the run directory.
        """
        if not self._since:
            return
        for tap in running_taps(self._cluster):
            tap.stop_log()
        ids = {getattr(client.spec, "transactional_id", None) for client in fleet.clients}
        coordinator_entries.collect(
            self._cluster,
            self._directory.path,
            topics=sorted(fleet.topics),
            transactional_ids=sorted(ident for ident in ids if ident),
            since=self._since,
        )
