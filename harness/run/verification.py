"""Reads the topics back by every witness that the scenario names, and judges."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from harness.base import processes
from harness.base.errors import ExitCode, HarnessError, RefusedError
from harness.base.secrets import redact
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence import observation
from harness.evidence.checkers.check_run import check_run
from harness.evidence.checkers.model import Expect, Pipeline
from harness.evidence.checkers.verdict import Judgement, Limit
from harness.evidence.observation import Window
from harness.evidence.run_directory import RunDirectory
from harness.scenario import Scenario
from harness.witness.plain_consumer import (
    ALONE,
    Place,
    freeze,
    group_positions,
    observe_topics,
    observe_totals,
)
from harness.witness.raw_log import Batch, fetch_batches, leaders, observe_raw

if TYPE_CHECKING:
    from harness.witness.spark.stream_supervisor import StreamVerification

READ_LIMIT_S = 300.0
_NO_ACCOUNT = (HarnessError, KafkaException, OSError, EOFError)


def expectation(scenario: Scenario) -> Expect:
    """What a run of this scenario promises to check; written before it starts."""
    pipelines = [
        Pipeline(group=w.group, inputs=[w.source], changelog=w.changelog)
        for w in scenario.workload
        if w.kind == "pipeline"
    ]
    if scenario.walkthrough and scenario.walkthrough.group:
        pipelines = [Pipeline(group=scenario.walkthrough.group, inputs=[scenario.walkthrough.source])]
    timeouts = [w.transaction_timeout for w in scenario.workload if w.kind in ("transactional", "pipeline")]
    timeouts += [scenario.walkthrough.transaction_timeout] if scenario.walkthrough else []
    return Expect(
        hold_to="exactly_once",
        witnesses=list(scenario.verify.witnesses),
        pipeline=pipelines[0] if pipelines else None,
        stall_ms=round(scenario.limits.recovery * 1000),
        transaction_timeout_ms=round(max(timeouts, default=60) * 1000),
    )


class Verification:
    """The verification of one run against the cluster that it ran on."""

    def __init__(self, cluster: Cluster, scenario: Scenario, directory: RunDirectory, run: str) -> None:
        self._bootstrap = cluster.bootstrap(BrokerListener.DIRECT)
        self._security = cluster.security
        self._as_group = f"{cluster.prefix}{ALONE}"
        self._scenario = scenario
        self._directory = directory
        self._run = run
        self._topics = scenario.written_topics
        self._hurry: Callable[[], bool] = lambda: False
        self.live: StreamVerification | None = None

    def start_live(self, folder: Path, tell: Callable[[str], None]) -> None:
        """Let Spark read along from the first record on, where the scenario names it as a witness."""
        if "spark" not in self._scenario.verify.witnesses:
            return
        from harness.witness.spark.spark_process import Job
        from harness.witness.spark.stream_supervisor import StreamVerification

        job = Job(
            kind="stream",
            bootstrap=self._bootstrap,
            windows=self._freeze(self._topics),
            folder=str(folder),
            security=self._security,
            run=self._run,
            options={"groupIdPrefix": f"{self._as_group}-spark"},
        )
        os.environ[processes.SUPERVISED] = "1"  # its driver is found, and ended, like every other client
        self.live = StreamVerification(job, tell)
        self.live.start()

    def stop_live(self) -> None:
        """End Spark's driver, whatever it is doing."""
        if self.live is not None:
            self.live.kill()

    def judge(
        self, limits: list[Limit], tell: Callable[[str], None], hurry: Callable[[], bool] = lambda: False
    ) -> tuple[ExitCode, Judgement]:
        """Observe, store, check; what can be redone offline with `eos check`.

        Once the user is in a `hurry`, nobody waits long for Spark.
        """
        self._hurry = hurry
        for witness in self._scenario.verify.witnesses:
            tell(f"reading {', '.join(self._topics)} back ({witness})")
            self._hear(witness, partial(_WITNESSES[witness], self, self._topics), tell)
        self._hear("the group", self._consumed, tell)
        self._hear("the changelog", self._aggregates, tell)
        self._directory.write("limits.json", limits)
        return check_run(self._directory.path)

    def _hear(self, name: str, witness: Callable[[], None], tell: Callable[[str], None]) -> None:
        """Let a witness read; without its account the verdict is unknown, and the others are heard."""
        try:
            witness()
        except RefusedError:
            raise  # an interlock: it says what must not be done, and not that a witness is silent
        except _NO_ACCOUNT as error:
            tell(f"{name} leaves no account: {error}")

    def _freeze(self, topics: list[str]) -> list[Window]:
        return freeze(self._bootstrap, topics, self._security)

    def _consumed(self) -> None:
        """What the pipeline's group has passed: the inputs up to its committed positions."""
        expect = expectation(self._scenario)
        if expect.pipeline is None:
            return
        ends = group_positions(self._bootstrap, expect.pipeline.group, self._security)
        seen = observe_topics(
            self._bootstrap,
            expect.pipeline.inputs,
            self._run,
            witness="consumed",
            limit_s=READ_LIMIT_S,
            ends=ends,
            group=expect.pipeline.group,
            security=self._security,
            as_group=self._as_group,
        )
        observation.save(seen, self._directory.observations / "consumed")

    def _aggregates(self) -> None:
        """What the changelog of a stateful pipeline says at its end."""
        expect = expectation(self._scenario)
        if expect.pipeline is None or not expect.pipeline.changelog:
            return
        seen = observe_totals(
            self._bootstrap,
            expect.pipeline.changelog,
            self._run,
            limit_s=READ_LIMIT_S,
            security=self._security,
            as_group=self._as_group,
        )
        observation.save(seen, self._directory.observations / "aggregates")

    def _reader(self, topics: list[str]) -> None:
        seen = observe_topics(
            self._bootstrap,
            topics,
            self._run,
            witness="reader",
            limit_s=READ_LIMIT_S,
            security=self._security,
            as_group=self._as_group,
        )
        observation.save(seen, self._directory.observations / "reader")

    def _spark(self, topics: list[str]) -> None:
        if self.live is None:
            return  # the run ended before Spark was started: that this witness is missing is told by coverage
        try:
            seen = self.live.finish(self._freeze(topics), hurry=self._hurry)
        finally:
            logs = self._directory.path / "logs"
            logs.mkdir(exist_ok=True)
            for file in map(self.live.folder.joinpath, ("driver.log", "progress.jsonl")):
                if file.exists():
                    (logs / f"spark-{file.name}").write_text(redact(file.read_text(errors="replace")))
        observation.save(seen, self._directory.observations / "spark")

    def _batches(self, led_by: Mapping[Place, tuple[str, int]], window: Window) -> list[Batch]:
        place = (window.topic, window.partition)
        leader = led_by[place]
        return list(fetch_batches(*leader, place, window.start, window.hw, security=self._security))

    def _raw_log(self, topics: list[str]) -> None:
        def read() -> list[tuple[Window, list[Batch]]]:
            led_by = leaders(self._bootstrap, topics, self._security)
            return [(window, self._batches(led_by, window)) for window in self._freeze(topics)]

        # Who has just been elected may be named before it has taken the partition up.
        logs = wait_until(read, READ_LIMIT_S, "the leaders to hand out their logs")
        seen = observe_raw(logs, self._run, finished=time.monotonic_ns())
        observation.save(seen, self._directory.observations / "raw-log")


_WITNESSES = {"spark": Verification._spark, "reader": Verification._reader, "raw-log": Verification._raw_log}
