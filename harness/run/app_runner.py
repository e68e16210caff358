"""The application under test within a run: its start, the wait until it has processed its inputs, its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Final

from harness.app.app_spec import AppSpec
from harness.app.http_sink import HttpSink
from harness.app.instance import AppInstance
from harness.app.launch_template import JAR_SETS, Placeholder, app_locks, arguments, fill, uses
from harness.app.limited_log import dropped_bytes
from harness.app.supervisor import AppSupervisor
from harness.base.errors import HarnessError, UsageError, WaitTimeoutError
from harness.base.partition_id import PartitionId
from harness.base.secrets import redact
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.app_list import AppListWriter
from harness.evidence.observation import Window
from harness.kafka.admin import EndOffsets
from harness.kafka.group_members import assigned_partitions
from harness.kafka.group_offsets import stable_offsets
from harness.kafka.read_to_end import read_to_end
from harness.provision.client_programs import go_program, python_packages
from harness.provision.jars import ensure_app_jars, ensure_jars
from harness.run.app_frames import AppFrames
from harness.run.counted_wait import wait_counted
from harness.run.fleet import Fleet
from harness.run.frame_capture import FrameCapture
from harness.run.output_growth import OutputGrowth
from harness.run.program import OBSERVER_HISTORY, RunContext
from harness.run.row_collection import own_value, rows_file
from harness.run.run_names import Names
from harness.run.running_app import RunningApp
from harness.tap.tap_client import ensure_tap
from harness.witness.plain_consumer import WITNESS_GROUP

LOOK_S: Final = 0.5
RESTART_LIMIT_S: Final = 10.0
"""Time limit for an instance to run again when a fault is to be injected into it."""
TAIL_LIMIT_S: Final = 10.0
"""Time limit for one look at the inputs behind the position of a group."""


class AppRunner:
    """The application of one run. Without an application in the scenario, every method does nothing."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._spec = run.scenario.app
        self._listener = BrokerListener.PROXIED
        self._supervisor: AppSupervisor | None = None
        self._control: RunningApp | None = None
        self._known_topics: set[str] = set()
        """Topics that existed before the application was started."""
        self._inputs = [part.topic for part in run.scenario.input]
        self._outputs = [part.topic for part in run.scenario.output if part.is_topic]
        self._sinks: dict[str, HttpSink] = {}
        self._growth = OutputGrowth()

    @property
    def group(self) -> str:
        """Consumer group of the application; empty if it has none."""
        return self._spec.group if self._spec else ""

    def start(self, fleet: Fleet, capture: FrameCapture) -> None:
        """Start all instances, and wait until the application is ready."""
        if self._spec is None:
            return
        run, self._listener = self._run, fleet.listener
        frames: AppFrames | None = None
        if capture.log_path is not None:
            flush = ensure_tap(run.cluster).flush
            frames = AppFrames(capture.log_path, lambda: [c.spec.client for c in fleet.clients], flush)
        self._known_topics = self._topics()
        if self._spec.running:
            self._attach(frames)
            return
        self._supervisor = AppSupervisor(
            self._spec,
            run.cluster.state.apps / run.run_id,
            self._value,
            starts=AppListWriter(run.directory, run.run_id),
            log=lambda text: run.events.phase("app", text),
            group_ready=self._has_all_partitions,
            fetch_ready=lambda since: (
                frames is not None and self._input_partitions <= frames.read().fetched_since(since)
            ),
        )
        self._control = RunningApp(
            run.cluster, self._supervisor, frames, group=self.group, outputs=self._outputs
        )
        self._fetch_packages(self._spec)
        for part in run.scenario.output:
            if part.http:
                self._sinks[part.name] = HttpSink(rows_file(run.directory.path, part.name))
        run.events.phase("app", f"start {', '.join(self._spec.names)}")
        began = time.monotonic()
        self._growth.begin()
        self._supervisor.start()
        self._supervisor.wait_ready(run.stop.is_set)
        run.events.phase("app", f"ready after {time.monotonic() - began:.1f} s")
        self.check_bypass()

    def _attach(self, frames: AppFrames | None) -> None:
        """Wait until the group of an application that already runs has every partition of the inputs."""
        run = self._run
        assert self._spec is not None
        address = run.cluster.bootstrap(self._listener)
        run.events.phase("app", f"wait for group {self.group} at {address}")
        control = RunningApp(run.cluster, None, frames, group=self.group, outputs=self._outputs)

        def is_ready() -> bool:
            # The group keeps a member whose process has ended until its session is over.
            return run.stop.is_set() or (self._has_all_partitions() and not control.unseen_member())

        what = f"group {self.group} to have all partitions of {', '.join(self._inputs)}"
        try:
            wait_until(is_ready, float(self._spec.limits.start), what, every=LOOK_S)
        except WaitTimeoutError as error:
            if not self._has_all_partitions():
                hint = f"start the application with the brokers {address}, this group and these topics"
                raise WaitTimeoutError(error.message, hint) from error
        self._control = control
        run.events.phase("app", f"group {self.group} is ready")
        self.check_bypass()

    @property
    def control(self) -> RunningApp | None:
        """The running application, for faults; None before its start."""
        return self._control

    @property
    def pids(self) -> list[int]:
        """Ids of the first processes of all instances that were started; none for containers.

        The process that this host has started for a container is only a Docker client.
        """
        if self._supervisor is None or self._supervisor.spec.in_container:
            return []
        return [instance.pid for instance in self._supervisor.instances if instance.number]

    def report_learned(self) -> None:
        """Report the time limits that the application has sent in the calm phase, and check for a bypass."""
        if self._control is None:
            return
        for line in self._control.learned():
            self._run.events.phase("app", f"learned: {line}")
        self.check_bypass()

    def check_bypass(self) -> None:
        """Stop the run if the application reaches a broker past the proxies."""
        address = self._control.bypass() if self._control else ""
        if address:
            self._run.stop.make(
                f"the application bypasses the proxies, so no fault on links affects it: {address}; "
                "let it use {bootstrap} and the addresses that the brokers advertise there"
            )
            self._run.stop.pause(0)

    def undeclared_topics(self) -> list[str]:
        """Describe the new topics with records that are neither inputs nor outputs of the application.

        A topic whose name begins with that of the group is internal to the application, such as a changelog
        of Kafka Streams, and so is one that matches a pattern of `internal`.
        """
        if self._control is None:
            return []
        run = self._run
        new = self._topics() - self._known_topics - set(run.scenario.app_topics)
        texts = self._spec.internal if self._spec else []
        patterns = [fill(text, lambda found: escape(self._value(found))) for text in texts]
        found = []
        for topic in sorted(new):
            records = sum(end.high_watermark for end in run.cluster.end_offsets(topic).values())
            if records and not is_internal(topic, self.group, patterns):
                found.append(
                    f"the application wrote {records} records to topic {topic}, which is not declared: "
                    "add it as [[output]], or to internal of [app]"
                )
        return found

    def _topics(self) -> set[str]:
        return {place.topic for place in self._run.cluster.admin.metadata(None).partitions}

    def _fetch_packages(self, spec: AppSpec) -> None:
        def report(text: str) -> None:
            self._run.events.phase("app", text)

        texts = spec.all_texts
        sets = {part for name, parts in JAR_SETS.items() if uses(texts, "jars", name) for part in parts}
        if sets:
            ensure_jars(report, *sorted(sets))
        for lock in app_locks(texts, Path(spec.directory)):
            ensure_app_jars(report, lock)
        for name in arguments(texts, "pip"):
            python_packages(Path(spec.directory) / name, report)
        for name in arguments(texts, "go"):
            go_program(Path(spec.directory) / name, report)

    def wait_ready(self, limit: float) -> None:
        """Wait until all instances are ready again."""
        if self._supervisor is not None:
            self._supervisor.wait_ready(self._run.stop.is_set, limit)

    def choose(self, pattern: str, seed: int) -> AppInstance:
        """Return a running instance whose name matches `pattern`; wait if they are all being restarted."""
        deadline = time.monotonic() + RESTART_LIMIT_S
        while True:
            try:
                return self._running.choose(pattern, seed)
            except UsageError:
                if time.monotonic() > deadline:
                    raise
            self._run.stop.pause(LOOK_S)

    def hold(self, instance: AppInstance) -> None:
        """Do not restart an instance, because a fault is about to end it."""
        self._running.hold(instance.name, "")

    def unhold(self, instance: AppInstance) -> None:
        """Let an instance be restarted as usual: it has ended by itself before the fault."""
        self._running.unhold(instance.name)

    def note_fault(self, instance: AppInstance, fault: str) -> None:
        """Record that a fault has ended an instance."""
        self._running.note_fault(instance.name, fault)

    def release(self, instance: AppInstance) -> None:
        """Start an instance that a fault has ended."""
        self._running.release(instance.name)

    def finish(self) -> None:
        """Wait until the application has processed its inputs, then stop it."""
        if self._control is None:
            return
        log = self._run.events.phase
        try:
            self._wait_processed(self._run.scenario.limits.stall)
        except WaitTimeoutError as error:
            # The verdict covers this case: inputs behind the position of the group are stalled.
            log("drain", error.message)
        for problem in self._supervisor.stop() if self._supervisor is not None else ():
            log("drain", problem)

    def kill(self) -> None:
        """End what still runs of the application, and copy its logs into the run directory."""
        if self._supervisor is None:
            return
        self._supervisor.kill()
        for sink in self._sinks.values():
            sink.close()
        folder = self._run.directory.path / "logs"
        folder.mkdir(exist_ok=True)
        for instance in self._supervisor.instances:
            (folder / f"{instance.name}.log").write_text(redact(instance.log()))
            if dropped := dropped_bytes(instance.log_path):
                self._run.events.phase(
                    "app",
                    f"{instance.name} wrote more than limits.log permits: logs/{instance.name}.log lacks the "
                    f"first {dropped / 1e6:.1f} MB",
                )

    @property
    def _running(self) -> AppSupervisor:
        if self._supervisor is None:
            raise HarnessError("the run has no application", "add [app] to the scenario")
        return self._supervisor

    def _value(self, found: Placeholder) -> str:
        run = self._run
        if found.name == "topic":
            return Names(run.cluster.prefix, run.run_id).scoped(found.argument)
        if found.name == "http":
            return self._sinks[found.argument].address
        if found.name in ("run", "shared"):
            return own_value(run.cluster, run.run_id, found.name)
        return {"bootstrap": run.cluster.bootstrap(self._listener), "group": self.group}[found.name]

    def _has_all_partitions(self) -> bool:
        cluster = self._run.cluster
        return self._input_partitions <= assigned_partitions(
            cluster.bootstrap(BrokerListener.DIRECT), self.group, cluster.security
        )

    @property
    def _input_partitions(self) -> set[PartitionId]:
        inputs = self._run.scenario.input
        return {(part.topic, partition) for part in inputs for partition in range(part.partitions)}

    def _wait_processed(self, limit: float) -> None:
        if self.group:
            self._run.events.phase("drain", f"group {self.group} reads the rest of its inputs")
            wait_counted(
                lambda: not self._unread(),
                limit,
                f"group {self.group} to pass its inputs",
                observer=self._run.directory.histories / OBSERVER_HISTORY,
                every=LOOK_S,
            )
            return
        assert self._control is not None
        request = self._control.request_timeout_ms() / 1000
        quiet = self._growth.quiet_s(request, limit)
        self._run.events.phase("drain", f"the outputs stop growing for {quiet:.0f} s")
        self._growth.begin()  # faults were healed and instances started until now
        wait_until(
            lambda: self._is_silent(request, limit),
            limit + quiet,
            "the outputs to stop growing",
            every=LOOK_S,
        )

    def _is_silent(self, request: float, never: float) -> bool:
        """Return whether the application is ready and has written nothing for long enough.

        An open transaction will end, which lets the outputs grow once more.
        """
        if self._supervisor is not None and not self._supervisor.is_ready():
            self._growth.begin()
        ends = self._read_ends()
        silent = self._growth.note(self._written({place: end.high_watermark for place, end in ends.items()}))
        is_open = any(end.last_stable < end.high_watermark for end in ends.values())
        return silent >= self._growth.quiet_s(request, never) and not is_open

    def note_outputs(self, bounds: Sequence[Window] | None) -> None:
        """Note how far the outputs have grown, to learn how long the application may be silent."""
        if self._control is None or self.group or bounds is None:
            return
        ends = {(w.topic, w.partition): w.hw for w in bounds if w.topic in self._outputs}
        self._growth.note(self._written(ends))

    def _read_ends(self) -> dict[PartitionId, EndOffsets]:
        return {
            (topic, partition): end
            for topic in self._outputs
            for partition, end in self._run.cluster.end_offsets(topic).items()
        }

    def _written(self, ends: dict[PartitionId, int]) -> object:
        """Return how much was written to all outputs: the ends of the topics, and the numbers of calls."""
        return [ends, *(sink.calls for sink in self._sinks.values())]

    def _unread(self) -> list[PartitionId]:
        """Return the input partitions with readable records behind the position of the group."""
        cluster = self._run.cluster
        positions = stable_offsets(cluster.admin, self.group)
        ends = {
            (topic, partition): end.last_stable
            for topic in self._inputs
            for partition, end in cluster.end_offsets(topic).items()
        }
        behind = {
            place: positions.get(place, 0) for place, end in ends.items() if positions.get(place, 0) < end
        }
        found: set[PartitionId] = set()
        config = {
            "bootstrap.servers": cluster.bootstrap(BrokerListener.DIRECT),
            "group.id": f"{cluster.prefix}{WITNESS_GROUP}",
            "isolation.level": "read_committed",
            **cluster.security.client(),
        }
        # A position may stay in front of markers and of aborted records, which no consumer is given.
        unread = read_to_end(
            config, behind, lambda place, _: found.add(place), time.monotonic() + TAIL_LIMIT_S, ends=ends
        )
        return sorted({*found, *unread})


def is_internal(topic: str, group: str, patterns: Sequence[str]) -> bool:
    """Return whether a topic is Kafka's own, or one that an application keeps for itself."""
    own = bool(group) and topic.startswith(f"{group}-")
    return own or any(fnmatchcase(topic, pattern) for pattern in ("__*", *patterns))


def is_there(cluster: Cluster, topic: str) -> bool:
    """Return whether a topic exists."""
    return any(place.topic == topic for place in cluster.admin.metadata(None).partitions)


def describe_use(cluster: Cluster, topic: str, partitions: int, group: str) -> str:
    """Describe why an existing topic cannot be used for a run; empty if it can.

    Records of an earlier run would be taken for those of this one.
    """
    ends = cluster.end_offsets(topic)
    if len(ends) != partitions:
        return f"topic {topic} has {len(ends)} partitions, but the scenario {partitions}"
    if records := sum(end.high_watermark for end in ends.values()):
        return f"topic {topic} has {records} offsets already: use topics that no earlier run has written"
    positions = stable_offsets(cluster.admin, group)
    if any(place[0] == topic and offset > 0 for place, offset in positions.items()):
        return f"group {group} has positions in topic {topic}, which is empty: use another group"
    return ""
