"""Tables of a report: key figures, faults and recovery in one clock, counts of anomalies, the application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from harness.base.events import Event, PhaseEvent, ProgressEvent
from harness.evidence.app_list import FILE as APP_FILE
from harness.evidence.app_list import AppList
from harness.evidence.checkers.contract_coverage import FINDABLE, NO, coverage
from harness.evidence.checkers.model import ANOMALIES, AppContract, Expect, OutputContract, Verdict
from harness.evidence.checkers.run_figures import Figures
from harness.evidence.checkers.verdict import CHECKED_BY, Judgement
from harness.evidence.run_directory import RECOVERY, RunDirectory, RunInfo, Summary
from harness.report.fault_spans import FaultSpan, start_of
from harness.report.html_template import link_to
from harness.report.ledger_table import outputs_table

Rows = list[tuple[str, ...]]

_CELL_LENGTH: Final = 400
_PROCESSORS: Final = ("x86_64", "aarch64", "arm64")
_STARTS_SHOWN: Final = 100


def about_line(info: RunInfo, length: str) -> str:
    """Return the seed and id of the run, its start and length, and the machine on which it ran."""
    facts = info.environment
    parts = [f"seed {info.seed}", f"run {info.run}", f"started {info.started.replace('T', ' ')} (local time)"]
    parts += [length] if length else []
    parts += [f"{facts['backend']} back end"] if facts.get("backend") else []
    parts += [f"Kafka {facts['kafka']}"] if facts.get("kafka") else []
    parts += [f"librdkafka {facts['librdkafka']}"] if facts.get("librdkafka") else []
    words = str(facts.get("system", "")).split("-")
    machine = " ".join([words[0], *(word for word in words if word in _PROCESSORS)])
    parts += [f"{machine}, {facts['cores']} cores" if facts.get("cores") else machine] if machine else []
    return " · ".join(map(str, parts))


def tiles(
    judgement: Judgement,
    summary: Summary,
    figures: Figures,
    faults: Sequence[FaultSpan],
    events: Sequence[Event],
) -> Rows:
    """Return the key figures of a run, each with a short description."""
    committed = sum(topic.committed for topic in figures.topics.values())
    found = len({anomaly.name for result in judgement.results for anomaly in result.anomalies})
    witnesses = {name for topic in figures.topics.values() for name in topic.read}
    looked_for = sum(finding.kind != "skipped" for finding in find_counts(judgement))
    rows: Rows = [
        (f"{committed:,}", "records acknowledged or committed"),
        (f"{summary.records:,}", f"records read back by {_count(len(witnesses), 'witness', 'witnesses')}"),
        (f"{found} of {looked_for}", "kinds of anomalies were found"),
    ]
    progress = [event for event in events if isinstance(event, ProgressEvent)]
    if progress:
        last = progress[-1]
        total = summary.transactions or last.committed + last.aborted + last.unknown
        whose = " of the inputs" if "contract" in summary.properties else ""
        rows += [(f"{total:,}", f"transactions{whose}, {last.aborted:,} aborted")] if total else []
    if faults:
        bitten = sum(fault.bitten is not None for fault in faults)
        rows.append((f"{bitten} of {len(faults)}", "faults had a measured effect"))
    if recovery := summary.limits.get(RECOVERY):
        rows.append(
            (
                f"{recovery.measured:g} s",
                f"to recover after the phase with faults (limit {recovery.limit:g} s)",
            )
        )
    return rows


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


class CountedName(NamedTuple):
    """The name of an anomaly with its count as text. `kind` is found, zero, open or skipped."""

    name: str
    meaning: str
    text: str
    kind: str


def find_counts(judgement: Judgement, contract: AppContract | None = None) -> list[CountedName]:
    """Return every name of an anomaly with its count, zeros included.

    A name is skipped if no checked property looks for it, and open if its count is not certain, because a
    property that looks for it is unknown.
    """
    found: dict[str, list[str]] = {}
    for result in judgement.results:
        for anomaly in result.anomalies:
            found.setdefault(anomaly.name, []).append(f"{anomaly.count} {anomaly.unit}")
    permitted = {anomaly.name: anomaly for result in judgement.results for anomaly in result.permitted}
    by_contract = {name for name, *cells in coverage(contract) if set(cells) != {NO}} if contract else set()
    counts = []
    for name, meaning in ANOMALIES.items():
        wanted = set(CHECKED_BY[name])
        if name in FINDABLE and name not in by_contract:
            wanted.discard("contract")
        checked = [result for result in judgement.results if result.property in wanted]
        if name in found:
            text, kind = ", ".join(found[name]), "found"
        elif not checked:
            text, kind = "not looked for", "skipped"
        elif any(result.verdict is Verdict.UNKNOWN for result in checked):
            text, kind = "0, not certain", "open"
        else:
            text, kind = "0", "zero"
        text += f" (permitted: {permitted[name].count})" if name in permitted else ""
        counts.append(CountedName(name, meaning, text, kind))
    return counts


def meaning_rows() -> Rows:
    """Return every name of an anomaly with its meaning and the properties that look for it."""
    return [(name, meaning, ", ".join(sorted(CHECKED_BY[name]))) for name, meaning in ANOMALIES.items()]


def fault_rows(faults: Sequence[FaultSpan]) -> Rows:
    """Return a row for each fault. All times are seconds since the start of the run."""
    rows: Rows = []
    for fault in faults:
        effect = format_bite(fault.bite) if fault.bitten is not None else f"no bite: {fault.reason}"
        times = (fault.begin, fault.bitten, fault.heal_began, fault.healed)
        rows.append((fault.name, *map(_seconds, times), effect[:_CELL_LENGTH]))
    return rows


def _seconds(at: float | None) -> str:
    return "-" if at is None else f"{at:.1f} s"


_UNITS: Final = {"_kb_per_s": " kB/s", "kb_per_s": " kB/s", "_ms": " ms", "_s": " s"}
"""Ends of the keys of measurements, and their units."""


def format_bite(bite: dict[str, Any]) -> str:
    """Format the measured effect of a fault, such as `slower: proxied-1 44.5 ms, tapped-1 20.9 ms`."""
    parts = []
    for key, value in bite.items():
        end, unit = next((pair for pair in _UNITS.items() if key.endswith(pair[0])), ("", ""))
        name = key.removesuffix(end) or "rate"
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            continue
        if isinstance(value, dict):
            shown = ", ".join(f"{k} {v}{unit}" for k, v in value.items())
        else:
            shown = f"{' '.join(map(str, value)) if isinstance(value, list) else value}{unit}"
        parts.append(f"{name.replace('_', ' ')}: {shown}")
    return "; ".join(parts)


def recovery_line(events: Sequence[Event], faults: Sequence[FaultSpan], summary: Summary) -> str:
    """Describe the recovery in seconds of the run, the same clock as the table of faults.

    A walkthrough, which has no progress events, waits for the cluster only.
    """
    healed = max((fault.healed for fault in faults if fault.healed is not None), default=None)
    began = next(
        (event.at for event in events if isinstance(event, PhaseEvent) and event.name == "recover"), None
    )
    clients = any(isinstance(event, ProgressEvent) for event in events)
    ready = "every client made progress again" if clients else "the cluster was healthy"
    text = "All times are seconds since the start of the run."
    if healed is not None:
        text += f" The last fault was healthy again at {healed:.1f} s."
    if began is not None and (recovery := summary.limits.get(RECOVERY)):
        end = f"to {began + recovery.measured:.1f} s, when {ready}: {recovery.measured:g} s"
        if recovery.where:
            end = f"for {recovery.measured:g} s, and nothing more was awaited then ({recovery.where})"
        text += (
            f" Recovery is measured from {began:.1f} s, when the phase with faults had ended, {end} "
            f"(limit {recovery.limit:g} s)."
        )
    return text


def compared_rows(judgement: Judgement) -> Rows:
    """Return a row for each property and each limit."""
    rows: Rows = [
        (
            result.property,
            str(result.verdict),
            f"{result.compared:,} {result.unit}",
            ", ".join(name for name in ANOMALIES if result.property in CHECKED_BY[name]),
        )
        for result in judgement.results
    ]
    return rows + [
        (limit.name, "held" if limit.held else "breached", limit.comparison, "") for limit in judgement.limits
    ]


class AppView(NamedTuple):
    """What a report shows about the application under test."""

    outputs: Any
    demands: Rows
    starts: Rows
    notes: list[str]


def app_view(
    run: RunDirectory, run_id: str, judgement: Judgement, figures: Figures, events: Sequence[Event]
) -> AppView | None:
    """Return the application's outputs, contract, instances and restarts; None if the run had none."""
    expect = run.read("expect.json", Expect, Expect())
    listed = run.read(APP_FILE, AppList, AppList(run="", clock=""))
    if expect.contract is None and not listed.starts:
        return None
    start = start_of(events)
    notes = [f"{name} was not restarted any more: {reason}" for name, reason in listed.gave_up.items()]
    if listed.starts:
        counted = ", ".join(f"{name} {count}" for name, count in listed.restarts.items())
        notes.append(f"Restarts: {counted}.")
    if (more := len(listed.starts) - _STARTS_SHOWN) > 0:
        notes.append(f"and {more} more starts, in {APP_FILE}")
    demands = _demands(expect.contract, judgement, figures, run_id) if expect.contract else []
    return AppView(outputs_table(figures, run_id), demands, _start_rows(run, listed, start), notes)


def _start_rows(run: RunDirectory, listed: AppList, start: int) -> Rows:
    def at(mono: int) -> str:
        return f"{(mono - start) / 1e9:.1f} s" if mono and start else "-"

    rows: Rows = []
    for one in listed.starts[:_STARTS_SHOWN]:
        how = one.ended or "no end recorded"
        reason = "; ".join(filter(None, (one.reason, one.last_line)))[:_CELL_LENGTH]
        code = "" if one.exit_code is None else str(one.exit_code)
        name = link_to(run.path, f"logs/{one.instance}.log", f"{one.instance}, start {one.number}")
        rows.append((name, at(one.started), at(one.at), how, code, reason))
    return rows


def _demands(contract: AppContract, judgement: Judgement, figures: Figures, run_id: str) -> Rows:
    """Return each demand of the contract, how much was compared, and what breaks it."""
    rows: Rows = []
    for output in contract.outputs:
        if output.tokens:
            compared, broken = _output_result(output.topic, contract, judgement)
            rows.append((output.topic.removesuffix(f".{run_id}"), _demand_text(output), compared, broken))
    for statement in contract.statements:
        key = (statement.output, statement.verb, statement.text)
        found = [part for part in figures.statements if (part.output, part.verb, part.text) == key]
        compared = ", ".join(f"{part.witness} {part.compared:,}" for part in found) or "nothing"
        broken = (
            ", ".join(f"{part.witness} {part.error or f'{part.broken:,}'}" for part in found) or "not checked"
        )
        name = statement.output.removesuffix(f".{run_id}")
        rows.append((name, f"{statement.verb}: {statement.text}", compared, broken))
    return rows


def _output_result(topic: str, contract: AppContract, judgement: Judgement) -> tuple[str, str]:
    """Return how many inputs were compared with the outputs of a topic, and the anomalies that name it.

    A verdict keeps only some examples of each anomaly, so an anomaly without one of this topic may concern
    it too.
    """
    result = next((result for result in judgement.results if result.property == "contract"), None)
    if result is None:
        return "nothing", "not checked"
    queries = [f"({part.verb}: {part.text})" for part in contract.statements]
    broken, left_out = [], []
    for anomaly in [*result.anomalies, *result.permitted]:
        examples = [e for e in anomaly.examples if not any(query in e.what for query in queries)]
        if any(topic in example.what for example in examples):
            broken.append(f"{anomaly.name} {anomaly.count:,} {anomaly.unit}")
        elif examples and anomaly.count > sum(example.weight for example in examples):
            left_out.append(anomaly.name)
    text = ", ".join(broken) or "0"
    if left_out:
        text += f" (of {', '.join(left_out)}, not every example is kept)"
    if result.verdict is Verdict.UNKNOWN:
        text += ", but the contract is unknown"
    return f"{result.compared:,} {result.unit}", text


def _demand_text(output: OutputContract) -> str:
    if output.required:
        text = "as many outputs for each input as the contract computes from it"
    elif output.most is None:
        text = f"at least {output.least} for each input"
    elif output.least == output.most:
        text = f"exactly {output.least} for each input"
    else:
        text = f"{output.least} to {output.most} for each input"
    return text + (f", in the order of each {output.order}" if output.order != "none" else "")
