"""`eos init`: two calm runs of an unknown application, and a scenario file with what they have shown.

The application runs behind the wire tap. The frames name its group, time limits and transactions. The outputs
are read back, and the tokens in them show how many outputs each input has. The result is a proposal: a calm
run cannot show what the application must do, only what it did.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.app.app_spec import AppSpec, ReadyCheck
from harness.app.launch_template import placeholders
from harness.base.errors import HarnessError, UsageError
from harness.base.events import EventListener
from harness.base.partition_id import PartitionId
from harness.base.units import Duration
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.app_list import FILE as APP_FILE
from harness.evidence.app_list import AppList
from harness.evidence.token import TokenFinder
from harness.kafka.read_to_end import read_to_end
from harness.run.app_frames import AppFrames, Observed
from harness.run.factory import make_run
from harness.run.run_names import Names
from harness.scenario.app_parts import EachRule, InputPart, OutputPart
from harness.scenario.headline import Header, PlanRules
from harness.scenario.model import Scenario, Verify
from harness.scenario.plan import draw
from harness.tap.tap_client import LOG_NAME
from harness.witness.plain_consumer import WITNESS_GROUP

READ_LIMIT_S: Final = 60.0
RUNS: Final = 2
SEED: Final = 1
LONGEST_SESSION_S: Final = 15.0
"""A freeze past the session is proposed only up to this time-out: with a longer one, each takes minutes."""
Id = tuple[int, int, int]
"""Producer, lane and sequence of an input: the same in every run with the same seed."""


@dataclass(frozen=True)
class Wanted:
    """Description of the application by its user."""

    command: list[str]
    topic: str
    value: str
    env: dict[str, str] = field(default_factory=dict)
    keys: int = 20
    rate: int = 200
    group: str = "app"
    instances: int = 1
    seconds: float = 8.0


@dataclass
class Output:
    """What one run wrote to one topic."""

    contents: dict[Id, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """Values of the outputs of each input, in the order of offsets, without the id of the run."""
    sequence: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """Sequences of a lane, in the order of offsets."""
    places: dict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    without_token: int = 0


@dataclass
class CalmRun:
    """What one calm run has shown."""

    directory: Path
    inputs: set[Id]
    outputs: dict[str, Output]
    observed: Observed
    names: Names


def calm_scenario(wanted: Wanted, folder: Path) -> Scenario:
    """Return the scenario of a run without faults. The outputs may be anything."""
    texts = [*wanted.command, *wanted.env.values()]
    used = [found for text in texts for found in placeholders(text)]
    topics = list(dict.fromkeys(found.argument for found in used if found.name == "topic" and found.argument))
    outputs = [topic for topic in topics if topic != wanted.topic]
    if wanted.topic not in topics or not outputs:
        missing = "no other {topic:...}" if wanted.topic in topics else f"no {{topic:{wanted.topic}}}"
        raise UsageError(
            "the command must contain {topic:...} for the input and for at least one output; "
            f"it contains {missing}",
            f"write {{topic:{wanted.topic}}} and, for example, {{topic:invoices}} in the command or in --env",
        )
    uses_group = any(found.name == "group" for found in used)
    return Scenario(
        scenario=Header(name=f"{wanted.topic}-calm", shows="what the application does without faults"),
        app=AppSpec(
            command=wanted.command,
            env=wanted.env,
            group=wanted.group if uses_group else "",
            instances=wanted.instances,
            ready=ReadyCheck() if uses_group else ReadyCheck(fetch=True),
            directory=str(folder),
        ),
        input=[InputPart(topic=wanted.topic, value=wanted.value, keys=wanted.keys, rate=wanted.rate)],
        output=[OutputPart(topic=topic, each=EachRule.parse("0..")) for topic in outputs],
        plan=PlanRules(steady=Duration(wanted.seconds), duration=Duration(0.1)),
        verify=Verify(witnesses=["reader"], frames=True),
    )


def run_calmly(cluster: Cluster, scenario: Scenario, root: Path, listeners: list[EventListener]) -> CalmRun:
    """Run the application once without faults, and return what it did."""
    run = make_run(cluster, scenario, draw(scenario, SEED), root, listeners)
    outcome = run.execute()
    names = Names(cluster.prefix, run.run_id)
    if outcome.interrupted:
        raise HarnessError("the calm run was interrupted", f"look at {outcome.directory}/report.html")
    finder = TokenFinder(run.run_id)
    inputs: set[Id] = set()
    outputs = {part.topic: Output() for part in scenario.output}

    def take_input(_: PartitionId, message: Any) -> None:
        inputs.update((i.producer, i.lane, i.seq) for i in finder.find([message.value(), message.key()]))

    _read(cluster, names.scoped(scenario.input[0].topic), take_input)
    for topic, output in outputs.items():
        _read(cluster, names.scoped(topic), _taker(output, finder, run.run_id))
    if not inputs:
        raise without_input(outcome.directory)
    log = outcome.directory / LOG_NAME
    own = [*_own_clients(outcome.directory)]
    frames = AppFrames(log, lambda: own, lambda: None)
    return CalmRun(outcome.directory, inputs, outputs, frames.read(), names)


def _taker(output: Output, finder: TokenFinder, run_id: str) -> Any:
    def take(place: PartitionId, message: Any) -> None:
        headers = [value for _, value in message.headers() or ()]
        found = finder.find([message.key(), message.value(), *headers])
        output.without_token += not found
        for each in found[:1]:
            lane = (each.producer, each.lane)
            content = re.sub(run_id.encode(), b"RUN", message.value() or b"", flags=re.IGNORECASE)
            output.contents[each.producer, each.lane, each.seq].append(content)
            output.sequence[lane].append(each.seq)
            output.places[lane].add(place[1])

    return take


def _own_clients(directory: Path) -> list[str]:
    return [path.stem for path in (directory / "history").glob("*.jsonl")]


def _read(cluster: Cluster, topic: str, take: Any) -> None:
    """Read the committed records of a topic to its end, partition by partition in the order of offsets."""
    ends = {(topic, number): end.last_stable for number, end in cluster.end_offsets(topic).items()}
    config = {
        "bootstrap.servers": cluster.bootstrap(BrokerListener.DIRECT),
        "group.id": f"{cluster.prefix}{WITNESS_GROUP}",
        "isolation.level": "read_committed",
        **cluster.security.client(),
    }
    starts = dict.fromkeys((place for place, end in ends.items() if end), 0)
    read_to_end(config, starts, take, time.monotonic() + READ_LIMIT_S)


_SAFE_END: Final = 5
"""From this version of EndTxn on, each transaction has an epoch of its own."""


def without_input(directory: Path) -> HarnessError:
    """Return the error of a calm run that wrote no input: mostly the application has ended by itself."""
    file = directory / APP_FILE
    starts = msgspec.json.decode(file.read_bytes(), type=AppList).starts if file.is_file() else []
    for start in starts:
        if start.ended == "by itself":
            what = f"{start.instance} ended with exit code {start.exit_code}"
            what += f"; its last line: {start.last_line}" if start.last_line else ""
            hint = f"read {directory}/logs/{start.instance}.log; `python` in the .venv of the harness has no "
            hint += "packages of yours: name your own interpreter"
            return HarnessError(f"the application does not run: {what}", hint)
    return HarnessError("the application got no input in the calm run", f"look at {directory}/report.html")


@dataclass(frozen=True)
class Finding:
    """One line about the application. A warning is something that may break exactly-once."""

    about: str
    text: str
    warning: bool = False


def findings(runs: list[CalmRun], scenario: Scenario) -> list[Finding]:
    """Describe what the runs have shown: how the application reads and writes, and what differs."""
    last = runs[-1]
    observed, found = last.observed, []
    app, topic = scenario.app, scenario.input[0].topic
    assert app is not None
    isolation = ", ".join(sorted(observed.isolations.get(last.names.scoped(topic), set()))) or "not seen"
    session = max(observed.session_timeouts.values(), default=0) / 1000
    group = f"as group {app.group}" if app.group else "without a group"
    found.append(Finding("reads", f"{topic} {group}, {isolation}, session time-out {session:g} s"))
    if "read_uncommitted" in isolation:
        found.append(
            Finding("reads", f"{topic} is read uncommitted: aborted inputs reach the application", True)
        )
    for part in scenario.output:
        found += _about_output(runs, part.topic)
    transactional = any(written.inside for written in observed.written.values())
    if observed.positions_outside and transactional:
        text = f"committed outside of the transactions ({observed.positions_outside} requests OffsetCommit)"
        found.append(Finding("offsets", f"{text}: a crash between the two repeats or loses outputs", True))
    elif observed.positions_outside:
        found.append(Finding("offsets", "committed without transactions"))
    elif observed.positions_inside:
        found.append(Finding("offsets", "committed in transactions"))
    if observed.transaction_timeouts:
        timeout = max(observed.transaction_timeouts.values()) / 1000
        longest = observed.longest_transaction_ms / 1000
        versions = ", ".join(map(str, sorted(observed.end_versions)))
        text = f"transaction time-out {timeout:g} s, longest transaction {longest:.2f} s, EndTxn {versions}"
        found.append(Finding("limits", text))
    if min(observed.end_versions, default=_SAFE_END) < _SAFE_END:
        text = (
            f"EndTxn below version {_SAFE_END}: a late request can damage the next transaction (hazards.md)"
        )
        found.append(Finding("hazards", text))
    return found


def _about_output(runs: list[CalmRun], topic: str) -> list[Finding]:
    last = runs[-1]
    written = last.observed.written.get(last.names.scoped(topic))
    found = []
    if written is None:
        return [Finding("writes", f"{topic}: nothing was written in the calm runs", True)]
    inside = (
        "in transactions" if not written.outside else f"{written.outside} batches outside of transactions"
    )
    found.append(Finding("writes", f"{topic} {inside}", bool(written.outside)))
    low, high = outputs_per_input(runs, topic)
    found.append(Finding("tokens", f"{topic}: {low if low == high else f'{low} to {high}'} for each input"))
    decoys = [ident for run in runs for ident in run.outputs[topic].contents if ident not in run.inputs]
    if decoys:
        found.append(
            Finding("tokens", f"{topic} contains {len(decoys)} inputs of aborted transactions", True)
        )
    if strangers := sum(run.outputs[topic].without_token for run in runs):
        found.append(Finding("tokens", f"{topic}: {strangers} outputs contain no token", True))
    if differing := differences(runs, topic):
        text = (
            f"{topic}: outputs of {len(differing)} inputs differ between the two runs, such as {differing[0]}"
        )
        found.append(Finding("differs", text, True))
    return found


def outputs_per_input(runs: list[CalmRun], topic: str) -> tuple[int, int]:
    """Return the smallest and the largest number of outputs that an input had."""
    counts = [len(run.outputs[topic].contents.get(ident, ())) for run in runs for ident in run.inputs]
    return min(counts), max(counts)


def differences(runs: list[CalmRun], topic: str) -> list[str]:
    """Describe the inputs of both runs whose outputs differ, as multisets of values."""
    first, second = runs[0].outputs[topic].contents, runs[-1].outputs[topic].contents
    common = sorted(runs[0].inputs & runs[-1].inputs)
    different = [i for i in common if Counter(first.get(i, ())) != Counter(second.get(i, ()))]
    return [f"{_shown(first.get(i, []))} and {_shown(second.get(i, []))}" for i in different]


def _shown(values: list[bytes]) -> str:
    return ", ".join(value.decode(errors="replace")[:80] for value in values[:2]) or "none"


def keeps_order(runs: list[CalmRun], topic: str) -> bool:
    """Return whether each lane was in order and in one partition in all runs."""
    return all(
        len(places) == 1 and sequence == sorted(sequence)
        for run in runs
        for lane, places in run.outputs[topic].places.items()
        for sequence in [run.outputs[topic].sequence[lane]]
    )


_BARE_KEY: Final = re.compile("[A-Za-z0-9_-]+")


def scenario_text(runs: list[CalmRun], scenario: Scenario, directory: str) -> str:
    """Return the text of the proposed scenario file."""
    app, part = scenario.app, scenario.input[0]
    assert app is not None
    session = max(runs[-1].observed.session_timeouts.values(), default=0) / 1000
    lines = [
        "# Written by `eos init` from two calm runs. Check [[output]]: it is what was seen, not a rule.",
        "[scenario]",
        f"name = {json.dumps(part.topic)}",
        'shows = "the application stays exactly-once while it and the brokers are killed"',
        "",
        "[app]",
        f"command = {json.dumps(app.command, ensure_ascii=False)}",
    ]
    pairs = ", ".join(
        f"{n if _BARE_KEY.fullmatch(n) else json.dumps(n)} = {json.dumps(v, ensure_ascii=False)}"
        for n, v in app.env.items()
    )
    lines += [f"env = {{ {pairs} }}"] if app.env else []
    lines += [f"directory = {json.dumps(directory)}"] if directory != "." else []
    lines += [f"group = {json.dumps(app.group)}"] if app.group else ["ready = { fetch = true }"]
    lines += [f"instances = {max(2, app.instances)}" if app.group else f"instances = {app.instances}"]
    lines += [
        "",
        "[[input]]",
        f"topic = {json.dumps(part.topic)}",
        f"keys = {part.keys}",
        f"rate = {part.rate}",
    ]
    lines += [f"value = {_literal(part.value)}", f"aborted = {part.aborted}"]
    for output in scenario.output:
        low, high = outputs_per_input(runs, output.topic)
        lines += ["", "[[output]]", f"topic = {json.dumps(output.topic)}"]
        lines += [f"each = {high}" if low == high and high else f'each = "{low}..{max(high, 1)}"']
        lines += ['order = "key"'] if part.keys and low == high and keeps_order(runs, output.topic) else []
    timeout = max(runs[-1].observed.transaction_timeouts.values(), default=0) / 1000
    lines += _plan(session if app.group else 0.0, timeout, scenario.output[0].topic)
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    """Return a text as a TOML string: in single quotes, which need no escapes, if that is possible."""
    return f"'{text}'" if text.isprintable() and "'" not in text else json.dumps(text, ensure_ascii=False)


def _plan(session: float, timeout: float, output: str) -> list[str]:
    lines = ["", "[plan]", 'steady = "3s"', 'duration = "30s"']
    faults = [("kill_app", "app(*)", ['lasts = ["1s", "3s"]'])]
    if 0 < session <= LONGEST_SESSION_S:
        faults.append(("freeze_app", "app(*)", ['past = "session"', 'lasts = "1s"']))
    faults.append(("kill", f"leader_of({output}, 0)", ['lasts = ["4s", "6s"]']))
    for fault, target, more in faults:
        lines += ["", "[[fault]]", f'fault = "{fault}"', f'target = "{target}"', *more]
    if timeout:
        lines += [
            "",
            "# Nothing above makes the application abort a transaction. Lost outputs do. Set its delivery",
            f"# time-out below its transaction time-out ({timeout:g} s), and uncomment these lines:",
            "#[[fault]]",
            '#fault = "lose_outputs"',
            '#target = "app(*)"',
            '#at = "0s"',
            '#lasts = "500ms"',
        ]
    return lines
