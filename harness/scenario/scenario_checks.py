"""Checks of a scenario as a whole: names, bounds, targets and client settings that cannot work.

A mistake is found when the scenario is loaded, and not when a cluster is up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from math import isfinite
from typing import Final

from harness.base.errors import UsageError
from harness.base.strict_toml import nearest
from harness.clients.setting_check import ClientLibraryUse, setting_problem
from harness.cluster.layout import BROKER_IDS, node_name
from harness.kafka.log.batches import missing_codec_package
from harness.scenario.model import Scenario, Workload
from harness.scenario.new_scenario import NAME

Fail = Callable[[str, str, str], UsageError]
Mistake = tuple[str, str, str]
"""Key, problem and hint."""

_KAFKA_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""Allowed names of topics and groups. Kafka allows 249 characters; the run's id and a prefix are added."""
_NAME_HINT: Final = "use 1 to 200 letters, digits, '.', '_' and '-'; the name cannot begin with '__'"
_OWN: Final = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "client.id",
        "group.id",
        "transactional.id",
        "isolation.level",
        "enable.idempotence",
    }
)
"""Settings that the harness sets itself: it needs them to recognise a client, or another key sets them."""
_BROKERS: Final = ", ".join(map(node_name, BROKER_IDS))
BROKERS_HINT: Final = f"the brokers are {_BROKERS}; an external cluster (--cluster) may have others"
_LONGEST_TRANSACTION_S: Final = 900.0
"""The longest transaction time-out that Kafka permits by default (transaction.max.timeout.ms)."""


def check_scenario(scenario: Scenario, fail: Fail) -> None:
    """Raise UsageError for the first mistake in a scenario."""
    for key, problem, hint in _mistakes(scenario):
        raise fail(key, problem, hint)


def check_brokers(scenario: Scenario, fail: Fail) -> None:
    """Raise UsageError for a fault on a broker that a cluster of the harness does not have."""
    for index, entry in enumerate(scenario.fault):
        if entry.target.broker is not None and entry.target.broker not in BROKER_IDS:
            raise fail(f"fault[{index}].target", f"there is no node {str(entry.target)!r}", BROKERS_HINT)


def _mistakes(scenario: Scenario) -> Iterator[Mistake]:
    if not NAME.fullmatch(scenario.name):
        yield (
            "scenario.name",
            f"{scenario.name[:80]!r} is not allowed",
            "use 1 to 64 letters, digits, '.', '_' and '-': it is the name of a folder",
        )
    if not scenario.verify.witnesses:
        yield "verify.witnesses", "is empty: nothing would be compared", "name reader, raw-log or spark"
    for index, workload in enumerate(scenario.workload):
        yield from _workload_mistakes(workload, f"workload[{index}]")
        if "raw-log" in scenario.verify.witnesses:
            yield from _unreadable_codecs(workload, f"workload[{index}]")
    yield from _repeated_workloads(scenario)
    if (part := scenario.walkthrough) is not None:
        if scenario.verify.metrics:
            yield "verify.metrics", "a walkthrough samples no metrics", "remove the key"
        for key, tries in (("tries", part.tries), ("control_tries", part.control_tries)):
            if tries is not None and not 1 <= tries <= 1000:
                yield f"walkthrough.{key}", f"{tries} is not allowed", "allowed: from 1 to 1000"
    yield from _time_mistakes(scenario)
    for index, entry in enumerate(scenario.fault):
        yield from _target_mistakes(scenario, index)
        if not isfinite(entry.weight):
            yield f"fault[{index}].weight", f"{entry.weight} is not a number", "write a weight such as 2.0"
        elif entry.weight <= 0:
            hint = "write a weight above 0, or remove the entry"
            yield f"fault[{index}].weight", f"{entry.weight} is not above 0", hint


def _workload_mistakes(workload: Workload, place: str) -> Iterator[Mistake]:
    names = (("topic", workload.topic), ("source", workload.source), ("group", workload.group))
    for key, name in (*names, ("changelog", workload.changelog)):
        given = name or key == "topic"
        if given and (not _KAFKA_NAME.fullmatch(name) or name in (".", "..") or name.startswith("__")):
            yield f"{place}.{key}", f"{name[:80]!r} is not a name that Kafka allows", _NAME_HINT
    if workload.kind == "pipeline" and workload.source == workload.topic:
        yield f"{place}.topic", "is also the source: the pipeline would never end", "use another topic"
    for key, value, largest in (
        ("clients", workload.clients, 100),
        ("partitions", workload.partitions, 1000),
        ("rate", workload.rate, 1_000_000),
        ("burst", workload.burst, 100_000),
        ("transaction", workload.transaction[1], 100_000),
        ("payload", workload.payload, 1_000_000),
    ):
        if value > largest:
            yield f"{place}.{key}", f"{int(value)} is too large", f"allowed: up to {largest}"
    least, most = workload.transaction
    for key, wrong, allowed in (
        ("clients", workload.clients < 1, "one or more"),
        ("partitions", workload.partitions < 1, "one or more"),
        ("rate", workload.rate < 1, "one or more records per second"),
        ("burst", workload.burst < 1, "one or more"),
        ("abort_share", not 0 <= workload.abort_share < 1, "from 0 to below 1"),
        ("transaction", not 1 <= least <= most, "[fewest, most] records, from 1 up"),
    ):
        if wrong:
            yield f"{place}.{key}", f"{getattr(workload, key)!r} is not allowed", f"allowed: {allowed}"
    if not 1 <= workload.transaction_timeout <= _LONGEST_TRANSACTION_S:
        yield (
            f"{place}.transaction_timeout",
            f"{workload.transaction_timeout} is not allowed",
            'allowed: from "1s" to "15m", the longest that Kafka permits by default',
        )
    yield from _setting_mistakes(workload, place)


def _repeated_workloads(scenario: Scenario) -> Iterator[Mistake]:
    seen: set[tuple[str, str]] = set()
    for index, workload in enumerate(scenario.workload):
        key = (workload.kind, workload.topic)
        if key in seen:
            yield (
                f"workload[{index}]",
                f"another workload has {workload.kind} clients of the topic {workload.topic} too",
                "their clients would have the same names: raise clients = ..., or use another topic",
            )
        seen.add(key)


def _time_mistakes(scenario: Scenario) -> Iterator[Mistake]:
    if scenario.plan.duration < 1:
        yield "plan.duration", f"{scenario.plan.duration} is too short", 'write "1s" or more'
    if scenario.limits.recovery <= 0:
        yield "limits.recovery", "must be longer than 0", 'write a time such as "60s"'
    for index, entry in enumerate(scenario.fault):
        drawn = entry.at is None and not entry.throughout
        if drawn and entry.lasts[0] + scenario.plan.gap[0] < 0.1:
            yield (
                f"fault[{index}].lasts",
                f"{entry.lasts[0]}, with a gap of {scenario.plan.gap[0]}, repeats the fault without end",
                'make lasts and plan.gap together "100ms" or longer',
            )


def _target_mistakes(scenario: Scenario, index: int) -> Iterator[Mistake]:
    target = scenario.fault[index].target
    key = f"fault[{index}].target"
    if target.kind == "leader_of" and not target.arguments[0].startswith("__"):
        topic, partition = target.arguments
        partitions = {w.topic: w.partitions for w in scenario.workload if w.kind != "reader"}
        partitions |= scenario.app_topics
        partitions |= {log: partitions.get(source, 1) for log, source in scenario.changelogs.items()}
        if topic not in partitions:
            yield (
                key,
                f"no client writes the topic {topic!r}",
                nearest(topic, sorted(partitions), "topics are"),
            )
        elif int(partition) >= partitions[topic]:
            last = partitions[topic] - 1
            yield key, f"{topic} has no partition {partition}", f"its partitions are 0 to {last}"
    if scenario.workload and target.kind in ("txn_coordinator", "group_coordinator"):
        known, what = _coordinated(scenario, target.kind)
        if target.arguments[0] not in known:
            yield (
                key,
                f"no client uses the {what} {target.arguments[0]!r}",
                nearest(target.arguments[0], known, f"the {what}s are"),
            )
    if target.client is not None and scenario.app is None:
        names = [
            f"{workload.kind}-{workload.topic}-{number}"
            for workload in scenario.workload
            for number in range(1, workload.clients + 1)
        ]
        if not any(fnmatchcase(name, target.client) for name in names):
            hint = nearest(target.client, names[:20], "the clients are")
            yield key, f"no client matches {target.client!r}", hint


def _coordinated(scenario: Scenario, role: str) -> tuple[list[str], str]:
    """Return the names that a coordinator of the clients has, and what they are."""
    if role == "group_coordinator":
        return sorted({workload.group for workload in scenario.workload if workload.group}), "group"
    ids = [
        f"{workload.topic}-{number}"
        for workload in scenario.workload
        if workload.kind in ("transactional", "pipeline")
        for number in range(1, workload.clients + 1)
    ]
    return ids, "transactional id"


def _setting_mistakes(workload: Workload, place: str) -> Iterator[Mistake]:
    """Check the names and values of client settings with the client library itself. It connects nowhere."""
    for name in workload.settings:
        if name.removeprefix("consumer.") in _OWN:
            yield f"{place}.settings", f"{name} cannot be set here: the harness sets it", f"remove {name}"
            return
    limit_ms = round(workload.transaction_timeout * 1000)
    problem = setting_problem(_used_by(workload), workload.settings, limit_ms) if workload.settings else ""
    if problem:
        yield f"{place}.settings", problem, 'write settings of librdkafka, such as { "linger.ms" = 20 }'


def _unreadable_codecs(workload: Workload, place: str) -> Iterator[Mistake]:
    """Refuse a codec whose batches the witness raw-log cannot decompress on this machine."""
    for name in ("compression.type", "compression.codec"):  # librdkafka has both names
        codec = str(workload.settings.get(name, ""))
        if workload.kind != "reader" and (package := missing_codec_package(codec)):
            yield (
                f"{place}.settings",
                f"the witness raw-log cannot read {name} = {codec} without the Python package {package}",
                f"install {package} into .venv, or name the other witnesses: "
                '--set \'verify.witnesses=["spark","reader"]\'',
            )


def _used_by(workload: Workload) -> tuple[ClientLibraryUse, ...]:
    """Return what the clients create with their settings."""
    if workload.kind == "reader":
        return (workload.protocol,) if workload.group else ("assigned",)
    if workload.kind == "idempotent":
        return ("idempotent",) if workload.idempotence else ("plain",)
    producer: ClientLibraryUse = "transactional" if workload.transactions else "idempotent"
    return (producer, workload.protocol) if workload.kind == "pipeline" else (producer,)
