"""Calm runs before a run: what the application writes without faults is the reference for what it must write.

There are two of them. An output in which they differ depends on more than its input, so it is no reference.
The values of their outputs, and the tokens of their inputs, become rows in the directory of the run. In the
rows, the id of the calm run is replaced by that of the run, so that tokens of the same input are the same.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.base.errors import HarnessError
from harness.base.units import Duration
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.checkers.model import Verdict
from harness.evidence.contract_statement import REFERENCES
from harness.kafka.read_to_end import read_to_end
from harness.run.row_collection import rows_file
from harness.run.run import Outcome, Run
from harness.run.run_names import Names
from harness.scenario import Scenario
from harness.scenario.app_parts import EachRule, InputPart, OutputPart
from harness.scenario.plan import Plan, draw
from harness.witness.plain_consumer import WITNESS_GROUP

READ_LIMIT_S: Final = 120.0
FOLDER: Final = "reference"
"""Folder of the run directory with the directories of the calm runs."""


MakeRun = Callable[[Scenario, Plan, Path], Run]
"""The factory of runs on one cluster, which this module cannot import."""


def calm_scenario(scenario: Scenario) -> Scenario:
    """Return the scenario of a calm run: as long as the run, without faults, and with any outputs."""
    replace = msgspec.structs.replace
    calm = float(scenario.plan.steady) + float(scenario.plan.duration)
    return replace(
        scenario,
        scenario=replace(scenario.scenario, expect="valid", anomalies=[]),
        fault=[],
        output=[
            OutputPart(topic=part.topic, partitions=part.partitions, each=EachRule.parse("0.."))
            for part in scenario.output
        ],
        plan=replace(scenario.plan, steady=Duration(calm), duration=Duration(0.1)),
        verify=replace(scenario.verify, witnesses=["reader"]),
    )


@dataclass(frozen=True)
class ReferenceRuns:
    """The calm runs before a run of this scenario with this seed."""

    make_run: MakeRun
    cluster: Cluster
    scenario: Scenario
    seed: int

    def write(self, run_id: str, directory: Path, log: Callable[[str], None]) -> None:
        """Carry out the calm runs, and write the rows of their inputs and outputs into a run directory."""
        parts: list[InputPart | OutputPart] = [*self.scenario.input]
        parts += [part for part in self.scenario.output if part.reference]
        for ending in REFERENCES:
            log(f"calm run without faults, for {', '.join(part.topic for part in parts)}{ending}")
            calm = calm_scenario(self.scenario)
            run = self.make_run(calm, draw(calm, self.seed), directory / FOLDER)
            _check(run.execute())
            names = Names(self.cluster.prefix, run.run_id)
            for part in parts:
                path = rows_file(directory, f"{part.table or part.topic}{ending}")
                path.parent.mkdir(exist_ok=True)
                _write(self.cluster, names.scoped(part.topic), path, run.run_id, run_id)


def _check(outcome: Outcome) -> None:
    # Limits of performance do not matter here: the phase of the faults is empty.
    if outcome.interrupted or outcome.judgement.verdict is not Verdict.VALID:
        raise HarnessError(
            f"a calm run, which is the reference, was {outcome.judgement.verdict}",
            f"look at {outcome.directory}/report.html",
        )


def _write(cluster: Cluster, topic: str, path: Path, calm_id: str, run_id: str) -> None:
    """Write the values of a topic as rows. The tokens in them become those of the run."""
    ends = {(topic, number): end.last_stable for number, end in cluster.end_offsets(topic).items()}
    config = {
        "bootstrap.servers": cluster.bootstrap(BrokerListener.DIRECT),
        "group.id": f"{cluster.prefix}{WITNESS_GROUP}",
        "isolation.level": "read_committed",
        **cluster.security.client(),
    }
    with path.open("wb") as file:

        def take(_: object, message: Any) -> None:
            file.write(reference_row(message.value() or b"", calm_id, run_id, topic) + b"\n")

        unread = read_to_end(config, dict.fromkeys(ends, 0), take, time.monotonic() + READ_LIMIT_S, ends=ends)
    if unread:
        raise HarnessError(f"topic {topic} of the calm run was not read to its end", "look at the brokers")


def reference_row(value: bytes, calm_id: str, run_id: str, topic: str) -> bytes:
    """Return a value as one line, with the id of the run instead of that of the calm run."""
    try:
        content = json.loads(value)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise HarnessError(
            f"a value in {topic} is no JSON object, so it cannot be compared with a calm run",
            "remove reference from this [[output]]",
        )

    def replaced(match: re.Match[str]) -> str:
        return match[1] + (run_id.upper() if match[2].isupper() else run_id)

    text = json.dumps(content, separators=(",", ":"))
    return re.sub(f"(?i)(eos1)({calm_id})", replaced, text).encode()
