"""Factory of all runs: the command line, pytest, `eos shrink` and external runs use it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.base.errors import RefusedError
from harness.base.events import EventListener
from harness.cluster import packet_filter
from harness.cluster.broker_flows import packets_problem
from harness.cluster.broker_metrics import metrics_problem
from harness.cluster.cluster import Cluster
from harness.cluster.tap_process import no_internal_tap
from harness.faults.catalogue import fault_class
from harness.faults.flow_faults import PACKETS_HINT, FlowFault
from harness.provision.kafka_versions import DEFAULT_KAFKA
from harness.run.fault_program import FaultProgram
from harness.run.reference_run import ReferenceRuns
from harness.run.run import Run
from harness.run.walkthrough_program import WalkthroughProgram
from harness.scenario import Scenario
from harness.scenario.kafka_needs import check_kafka
from harness.scenario.plan import Plan, format_replay_command
from harness.walkthroughs.catalogue import WALKTHROUGHS


def make_run(
    cluster: Cluster,
    scenario: Scenario,
    plan: Plan,
    root: Path,
    listeners: Sequence[EventListener] = (),
    *,
    replay_command: str = "",
) -> Run:
    """Create the run of a scenario without starting it. The run will use a new directory below `root`."""
    if scenario.app is not None and not cluster.owned:
        raise RefusedError(
            "a scenario with [app] cannot run on an external cluster: the harness keeps its own requests "
            "within the prefix and the write rate of the cluster file, but not those of an application",
            "leave out --cluster, and test the application on a cluster that the harness starts",
        )
    if scenario.cluster.internal_tap and not cluster.record.internal_tap:
        raise no_internal_tap(cluster.state)
    if _drops_packets(scenario) and (problem := packets_problem(cluster)):
        raise RefusedError(problem, PACKETS_HINT)
    if scenario.verify.metrics and (problem := metrics_problem(cluster)):
        raise RefusedError(problem, "leave out verify.metrics")
    if cluster.owned:
        check_kafka(scenario, cluster.record.kafka)
    for injection in plan.injections:
        injection.entry.target.check(cluster)
    program = FaultProgram if scenario.walkthrough is None else WalkthroughProgram
    more = kafka_arguments(cluster, scenario)
    command = replay_command or format_replay_command(scenario.name, plan.seed, more=more)
    run = Run(cluster, scenario, plan, root, program=program, listeners=listeners, replay_command=command)
    if any(part.reference for part in scenario.output):
        run.before = ReferenceRuns(partial(make_run, cluster), cluster, scenario, plan.seed).write
    return run


def check_machine(scenario: Scenario) -> None:
    """Raise RefusedError if this machine cannot do what a scenario needs. No cluster is needed for this."""
    if _drops_packets(scenario) and (problem := packet_filter.unavailable()):
        raise RefusedError(f"packets between brokers cannot be dropped: {problem}", PACKETS_HINT)


def _drops_packets(scenario: Scenario) -> bool:
    if scenario.walkthrough is not None:
        return WALKTHROUGHS[scenario.walkthrough.steps].drops_packets
    return any(issubclass(fault_class(entry.fault), FlowFault) for entry in scenario.fault)


def kafka_arguments(cluster: Cluster, scenario: Scenario) -> list[str]:
    """Return the arguments of a replay command that name the cluster's version of Kafka.

    They are empty for the default version, for the version that the scenario names itself, and for an
    external cluster.
    """
    version = cluster.record.kafka
    known = (DEFAULT_KAFKA, scenario.cluster.kafka, *([] if cluster.owned else [version]))
    return [] if version in known else ["--kafka", version]
