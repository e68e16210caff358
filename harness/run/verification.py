"""Verification of a run: every witness of the scenario reads the topics back, then the run is checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from harness.base.errors import ExitCode, HarnessError, RefusedError, describe_error
from harness.base.heartbeat import heartbeat
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence import manifest, observation
from harness.evidence.checkers.app_outputs import output_witness
from harness.evidence.checkers.app_statements import STATEMENTS
from harness.evidence.checkers.check_run import check_run
from harness.evidence.checkers.model import AppContract, Expect, Pipeline
from harness.evidence.checkers.promises import promises_of
from harness.evidence.checkers.verdict import Judgement, Limit
from harness.evidence.log_line import clock_id
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.row_output import observe_rows, rows_of
from harness.evidence.run_directory import RunDirectory
from harness.evidence.slot_split import split_slots
from harness.evidence.stored_logs import FILE as AUDIT_FILE
from harness.evidence.stored_logs import StoredLogs
from harness.kafka.admin import admin_at
from harness.kafka.log.audit_tables import read_tables_of_run
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.run.row_collection import RowCollection
from harness.run.spark_stream import SparkStream, slots_of
from harness.scenario import Scenario
from harness.scenario.contract_sql import app_contract
from harness.witness.plain_consumer import (
    REQUEST_LIMIT_S,
    WITNESS_GROUP,
    Where,
    freeze,
    freeze_windows,
    group_positions,
    limit_to,
    observe_contract,
    observe_topics,
    observe_totals,
)
from harness.witness.raw_log import fetch_logs, observe_raw

READ_LIMIT_S = 300.0
BEAT_S: Final = 15.0
"""Time between two lines that show that a witness is still reading."""
_LONG_READING: Final = f"{4 * BEAT_S:.0f} s"
"""Time after which such a line also names the usual cause."""
_EXTERNAL_SKEW_MS: Final = 1_000
"""Assumed difference between the clocks of two brokers of an external cluster.

The nodes of a cluster that the harness started have one clock.
"""
_OBSERVATIONS: Final = {"spark": ("spark", "spark-batch"), "reader": ("reader",), "raw-log": ("raw-log",)}
"""Names of the observations that each witness of a scenario makes.

Spark makes two: its stream reads the topics, and its batch job gives a second opinion.
"""
_KINDS: Final[dict[str, Literal["reference", "raw"]]] = {"reader": "reference", "raw-log": "raw"}
"""Kind of the observation of each witness that makes one, besides Spark."""
_WITNESS_ERRORS = (HarnessError, OSError, EOFError)


def expectation(scenario: Scenario) -> Expect:
    """Return the properties and limits that the checkers apply to a run of this scenario.

    The result is stored before the run starts.
    """
    pipelines = [
        Pipeline(group=w.group, inputs=[w.source], changelog=w.changelog)
        for w in scenario.workload
        if w.kind == "pipeline"
    ]
    if scenario.walkthrough and scenario.walkthrough.group:
        pipelines = [Pipeline(group=scenario.walkthrough.group, inputs=[scenario.walkthrough.source])]
    timeouts = [w.transaction_timeout for w in scenario.workload if w.kind in ("transactional", "pipeline")]
    timeouts += [part.transaction_timeout for part in scenario.input]
    timeouts += [scenario.walkthrough.transaction_timeout] if scenario.walkthrough else []
    return Expect(
        hold_to="exactly_once",
        clients=True,
        counted=True,
        lateness=True,
        app=scenario.app is not None and not scenario.app.running,
        witnesses=[name for witness in scenario.verify.witnesses for name in _OBSERVATIONS[witness]],
        pipeline=pipelines[0] if pipelines else None,
        contract=app_contract(scenario),
        stall_ms=round(scenario.limits.stall * 1000),
        transaction_timeout_ms=round(max(timeouts, default=60) * 1000),
    )


def stores_logs(cluster: Cluster, scenario: Scenario) -> bool:
    """Return whether a run stores the logs of its partitions and coordinators."""
    return "raw-log" in scenario.verify.witnesses and TRANSACTION_TOPIC in cluster.readable_logs


def _log_reading(log: Callable[[str], None], witness: str, text: str) -> None:
    """Log a line of the heartbeat of a witness that reads, with the name of the witness."""
    if not text.startswith(" "):
        log(text)
        return
    beat = text.strip(" .")
    why = "; on a busy machine this takes long (docs/how-to/slow-machine.md)" if beat == _LONG_READING else ""
    log(f"{witness} is still reading after {beat}{why}")


class Verification:
    """Verification of one run by its witnesses."""

    def __init__(
        self, cluster: Cluster, scenario: Scenario, directory: RunDirectory, run_id: str, spark: SparkStream
    ) -> None:
        self._bootstrap = cluster.bootstrap(BrokerListener.DIRECT)
        self._security = cluster.security
        self._as_group = f"{cluster.prefix}{WITNESS_GROUP}"
        self._admin = cluster.admin
        self._readable = cluster.readable_logs
        self._stores_logs = stores_logs(cluster, scenario)
        self._clock_skew_ms = 0 if cluster.owned else _EXTERNAL_SKEW_MS
        self._scenario = scenario
        self._directory = directory
        self._run_id = run_id
        self._spark = spark
        self._topics = scenario.written_topics
        outputs = {part.name for part in scenario.output}
        self._rows = RowCollection(cluster, scenario, run_id, directory.path)
        self._inputs = [topic for topic in self._topics if topic not in outputs]
        """Topics whose records the histories list: all topics except the outputs of an application."""
        self._where: Where = "token" if scenario.app else "value"
        self._timed: Callable[[str, float], None] = lambda _step, _seconds: None
        self._frozen: list[Window] = []
        """The ends that the first witness froze. All witnesses of whole topics read up to them."""

    def collect_and_judge(
        self,
        limits: list[Limit],
        log: Callable[[str], None],
        should_stop_waiting: Callable[[], bool] = lambda: False,
        timed: Callable[[str, float], None] = lambda _step, _seconds: None,
    ) -> tuple[ExitCode, Judgement]:
        """Let every witness read the topics, store the observations and the manifest, and check the run.

        Once `should_stop_waiting` returns True, Spark gets only a short time to finish. `eos check` repeats
        the check offline. `timed` is called with the name and the seconds of each step.
        """
        self._timed = timed
        collectors: dict[str, Callable[[], None]] = {
            "spark": lambda: self._collect_spark(should_stop_waiting),
            "reader": self._collect_reader,
            "raw-log": self._collect_raw_log,
        }
        if any(not part.is_topic for part in self._scenario.output):
            with self._step("outputs"):
                self._collect("the outputs", lambda: self._rows.collect(log), log)
        for witness in self._scenario.verify.witnesses:
            reading = f"reading {', '.join(self._topics)} back ({witness})"
            beat = partial(_log_reading, log, witness)
            with self._step(witness), heartbeat(beat, reading, BEAT_S):
                self._collect(witness, collectors[witness], log)
        if self._stores_logs:
            with self._step("audit"):
                self._collect("the coordinators' logs", self._collect_audit, log)
        expect = expectation(self._scenario)
        if expect.pipeline is not None or expect.contract is not None:
            with self._step("group"):
                self._collect("the group", self._collect_consumed, log)
                self._collect("the changelog", self._collect_aggregates, log)
        with self._step("manifest"):
            self._directory.write("limits.json", limits)
            manifest.write(self._directory, self._run_id, promises_of(self._directory))
        with self._step("checkers"):
            return check_run(self._directory.path, write=True)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Report the seconds of one step. The batch job of Spark is a step of its own."""
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            if name == "spark":
                self._timed(name, round(seconds - self._spark.batch_s, 3))
                self._timed("spark-batch", round(self._spark.batch_s, 3))
            else:
                self._timed(name, round(seconds, 3))

    def _collect(self, witness: str, read: Callable[[], None], log: Callable[[str], None]) -> None:
        """Let one witness read. If it fails, the other witnesses still read, and the verdict is unknown."""
        try:
            read()
        except RefusedError:
            raise  # a refusal ends the run and does not count as a failure of the witness
        except _WITNESS_ERRORS as error:
            log(f"could not read {witness}: {error}")
            if witness in _KINDS:
                self._save_unread(witness, describe_error(error))

    def _save_unread(self, witness: str, reason: str) -> None:
        """Save the observation of a witness that could not read, so that the verdict contains the reason."""
        if (self._directory.observations / witness).exists():
            return
        try:
            windows = [msgspec.structs.replace(w, read_to=w.start) for w in self._freeze()]
        except _WITNESS_ERRORS:
            windows = []
        meta = Meta(witness=witness, kind=_KINDS[witness], windows=windows, clock=clock_id(), detail=reason)
        self._save(Observation(meta), witness)

    def _freeze(self) -> list[Window]:
        """Return the ends that all witnesses share. The first call requests them from the leaders."""
        if not self._frozen:
            self._frozen = freeze(self._bootstrap, self._topics, self._security)
        return msgspec.convert(msgspec.to_builtins(self._frozen), list[Window])

    def _save(self, found: Observation, name: str) -> None:
        found.meta.run = self._run_id
        observation.save(found, self._directory.observations / name)

    def _save_outputs(self, found: Observation, topic: str) -> None:
        """Save what a witness read in an output topic of the application."""
        found.meta.witness = output_witness(found.meta.witness, topic)
        self._save(found, found.meta.witness)

    def _collect_consumed(self) -> None:
        """Read the inputs of the pipeline or application up to the committed offsets of its group."""
        expect = expectation(self._scenario)
        reader: Pipeline | AppContract | None = expect.pipeline or expect.contract
        if reader is None or not reader.group:
            return
        asked = time.monotonic_ns()
        consumed = observe_topics(
            self._bootstrap,
            reader.inputs,
            self._run_id,
            witness="consumed",
            limit_s=READ_LIMIT_S,
            ends=group_positions(self._bootstrap, reader.group, self._security),
            group=reader.group,
            where=self._where,
            security=self._security,
            as_group=self._as_group,
        )
        consumed.meta.frozen = asked  # the group's positions were requested before the ends
        self._save(consumed, "consumed")

    def _collect_aggregates(self) -> None:
        """Read the totals in the changelog of a stateful pipeline."""
        pipeline = expectation(self._scenario).pipeline
        if pipeline is None or not pipeline.changelog:
            return
        totals = observe_totals(
            self._bootstrap,
            pipeline.changelog,
            self._run_id,
            limit_s=READ_LIMIT_S,
            security=self._security,
            as_group=self._as_group,
        )
        self._save(totals, "aggregates")

    def _collect_reader(self) -> None:
        records = observe_topics(
            self._bootstrap,
            self._inputs,
            self._run_id,
            witness="reader",
            limit_s=READ_LIMIT_S,
            shared=self._freeze(),
            where=self._where,
            security=self._security,
            as_group=self._as_group,
        )
        self._save(records, "reader")
        for row in filter(lambda source: source.is_output, self._rows.sources()):
            problem = self._rows.problems.get(row.name, "")
            meta = Meta(witness="reader", kind="reference", complete=not problem, detail=problem)
            meta.clock, meta.frozen = clock_id(), time.monotonic_ns()
            seen = observe_rows(meta, row, self._run_id, rows_of(Path(row.file)) if not problem else ())
            seen.meta.finished = time.monotonic_ns()
            self._save_outputs(seen, row.name)
        for part in self._scenario.output:
            if not part.is_topic:
                continue
            outputs = observe_topics(
                self._bootstrap,
                [part.topic],
                self._run_id,
                witness="reader",
                limit_s=READ_LIMIT_S,
                shared=self._freeze(),
                where="token",
                security=self._security,
                as_group=self._as_group,
                outputs=True,
                counted=part.is_counted,
            )
            self._save_outputs(outputs, part.topic)
        contract = expectation(self._scenario).contract
        if contract is not None and contract.tables:
            for view in observe_contract(
                self._bootstrap,
                contract,
                self._run_id,
                self._freeze(),
                limit_s=READ_LIMIT_S,
                security=self._security,
                as_group=self._as_group,
                rows=[row for row in self._rows.sources() if row.name not in self._rows.problems],
                problems=self._rows.problems,
            ):
                self._save_contract(view)

    def _save_contract(self, view: Observation) -> None:
        """Save what the queries of a contract found, or how many outputs each input must have."""
        name = view.meta.witness if view.meta.purpose == "required" else f"{view.meta.witness}{STATEMENTS}"
        view.meta.witness = name
        self._save(view, name)

    def _collect_spark(self, should_stop_waiting: Callable[[], bool]) -> None:
        asked = time.monotonic_ns()
        # The list is empty if Spark was never started; the coverage check reports it.
        for records in self._spark.finish(self._freeze, self._directory.path / "logs", should_stop_waiting):
            records.meta.frozen = records.meta.frozen or asked
            for topic, part in split_slots(records, slots_of(self._scenario)).items():
                if topic:
                    self._save_outputs(part, topic)
                else:
                    self._save(part if self._scenario.app else records, records.meta.witness)
        for view in self._spark.contract_views():
            if view.meta.purpose == "outputs":
                self._save_outputs(view, view.meta.windows[0].topic)
            else:
                self._save_contract(view)

    def _collect_raw_log(self) -> None:
        shared = self._freeze()

        def read() -> Observation:
            admin = admin_at(self._bootstrap, self._security, REQUEST_LIMIT_S)
            asked = time.monotonic_ns()
            windows = limit_to(shared, freeze_windows(admin, self._inputs))
            logs = fetch_logs(admin, windows)
            records = observe_raw(logs, self._run_id, tokens=self._where == "token")
            records.meta.frozen = asked
            return records

        # Metadata may name a new leader before that broker accepts fetches, so retry.
        records = wait_until(read, READ_LIMIT_S, "the batches of every partition from its leader")
        self._save(records, "raw-log")

    def _collect_audit(self) -> None:
        """Store the markers, positions and decisions that the search for damage compares."""
        expect = expectation(self._scenario)
        reader: Pipeline | AppContract | None = expect.pipeline or expect.contract
        stored = StoredLogs(run=self._run_id, clock_skew_ms=self._clock_skew_ms)
        try:
            tables = read_tables_of_run(
                self._admin,
                self._topics,
                [reader.group] if reader is not None and reader.group else [],
                positions=OFFSETS_TOPIC in self._readable,
                limit_s=READ_LIMIT_S,
            )
            stored.partitions, stored.coordinators = tables.partitions, tables.coordinators
            stored.unread = tables.unread
        except _WITNESS_ERRORS as error:
            stored.unread = [describe_error(error)]
            raise
        finally:
            self._directory.write(AUDIT_FILE, msgspec.json.encode(stored))
