"""Strict reader of scenario files. Each error names the file, the line, the key and the allowed values."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from harness.base.errors import CapabilityError, HarnessError, UsageError
from harness.base.strict_toml import StrictFile, keys_of, nearest, parse, text_in
from harness.base.texts import shorten
from harness.clients.planted_bugs import BUGS
from harness.cluster.targets import Target
from harness.evidence.checkers.model import ANOMALIES
from harness.faults.catalogue import fault_class
from harness.provision.kafka_versions import check_version
from harness.scenario.app_checks import check_app, check_locks, in_folder
from harness.scenario.kafka_needs import check_kafka
from harness.scenario.model import USED_BY, USED_BY_ALL, FaultEntry, Scenario, WalkthroughPart, Workload
from harness.scenario.parameters import make_fault, missing_parameter, parameter_value, parameters_of
from harness.scenario.scenario_checks import check_brokers, check_scenario
from harness.walkthroughs.catalogue import WALKTHROUGHS


def load(path: Path, overrides: dict[str, str] | None = None, *, external: bool = False) -> Scenario:
    """Read a scenario and apply the overrides of the option `--set`.

    Raise UsageError if the scenario is invalid. With `external`, its faults may name brokers that a
    cluster of the harness does not have.
    """
    text = text_in(path)
    data = parse(path, text)
    for key, value in (overrides or {}).items():
        _override(data, key, value)
    return _Loader(path, text, overrides or {}, external=external).scenario(data)


def located(error: UsageError, path: Path, overrides: dict[str, str]) -> UsageError:
    """Return an error about a loaded scenario with the file and line of the key that it begins with."""
    match = re.fullmatch(r"(\w+\[\d+\]\.\w+): (.*)", error.message)
    if match is None:
        return error
    return StrictFile(path, text_in(path), "", overrides).fail(match[1], match[2], error.hint)


def _override(data: dict[str, Any], key: str, value: str) -> None:
    """Apply one override `--set KEY=VALUE`, such as `plan.duration=60s` or `workload.0.rate=500`."""
    *parents, last = key.split(".")
    if not all((*parents, last)):
        hint = "write a key, such as plan.duration"
        raise UsageError(f"--set {shorten(key)}=...: a part of the key is empty", hint)
    place: Any = data
    try:
        for part in parents:
            place = place[_index(part, place)] if isinstance(place, list) else place.setdefault(part, {})
        parsed = tomllib.loads(f"value = {value}")["value"] if _is_toml(value) else value
        place[_index(last, place) if isinstance(place, list) else last] = parsed
    except (LookupError, AttributeError, TypeError) as error:
        # A value that is not a table has no method `setdefault`, and cannot contain keys.
        problem = error.args[0] if isinstance(error, LookupError) else "one part is a value and not a table"
        raise UsageError(
            f"--set {shorten(key)}={shorten(value)} names no key of the scenario: {problem}",
            "write the path of a key, such as plan.duration or workload.0.rate",
        ) from error


def _index(text: str, entries: list[Any]) -> int:
    """Return the index of an entry of a list, such as [[workload]]."""
    if not (text.isascii() and text.isdigit()):
        raise LookupError(f"{shorten(text)!r} is not the number of an entry")
    if len(text) > 9 or int(text) >= len(entries):
        raise LookupError(f"there is no entry {shorten(text)}; the last one is {len(entries) - 1}")
    return int(text)


def _is_toml(value: str) -> bool:
    try:
        tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return False
    return True


class _Loader:
    """Converter from parsed TOML to a Scenario. It raises an error for every mistake in the file."""

    def __init__(self, path: Path, text: str, replaced: Iterable[str], *, external: bool) -> None:
        self._path = path
        self._external = external
        example = "`eos show jitter` prints a complete scenario"
        self._file = StrictFile(path, text, example, replaced)
        self._fail = self._file.fail

    def scenario(self, data: dict[str, Any]) -> Scenario:
        if "flow" in data:
            raise self._fail(
                "flow", "this table has a new name", "write [walkthrough], and --set walkthrough.KEY=VALUE"
            )
        faults = data.get("fault")
        for index, entry in enumerate(faults if isinstance(faults, list) else []):
            if isinstance(entry, dict):
                self._split_parameters(entry, index)
                self._parse_target(entry, index)
        workloads = data.get("workload")
        for index, entry in enumerate(workloads if isinstance(workloads, list) else []):
            if isinstance(entry, dict):
                self._check_keys(entry, index)
        scenario = self._file.convert(data, Scenario)
        self._check_header(scenario)
        for index, workload in enumerate(scenario.workload):
            self._check_workload(workload, data["workload"][index], index)
        for index, fault in enumerate(scenario.fault):
            self._check_fault(fault, index)
            if fault.parameters.get("listener") == "INTERNAL" and not scenario.cluster.internal_tap:
                raise self._fail(
                    f"fault[{index}].listener",
                    "this cluster has no tap between its brokers",
                    "add internal_tap = true to [cluster]",
                )
        self._check_pipelines(scenario)
        check_scenario(scenario, self._fail)
        if not self._external:
            check_brokers(scenario, self._fail)
        self._check_kafka(scenario)
        check_app(scenario, self._fail)
        return self._in_its_folder(scenario)

    def _check_kafka(self, scenario: Scenario) -> None:
        if not scenario.cluster.kafka:
            return
        try:
            check_version(scenario.cluster.kafka)
            check_kafka(scenario, scenario.cluster.kafka)
        except (UsageError, CapabilityError) as error:
            raise self._fail("cluster.kafka", error.message, error.hint) from None

    def _in_its_folder(self, scenario: Scenario) -> Scenario:
        """Return the scenario with the absolute path of the folder in which the application runs."""
        if scenario.app is None:
            return scenario
        folder = (self._path.parent / scenario.app.directory).resolve()
        if not folder.is_dir():
            raise self._fail(
                "app.directory", f"{folder} is not a folder", "write it relative to the scenario file"
            )
        app = in_folder(scenario.app, str(folder))
        check_locks(app, self._fail)
        return msgspec.structs.replace(scenario, app=app)

    def _split_parameters(self, entry: dict[str, Any], index: int) -> None:
        """Move the fault's parameters from the top level of a [[fault]] entry into its field `parameters`.

        Convert each value to the unit and the type of the fault's field.
        """
        known = {field for field in FaultEntry.__struct_fields__ if field != "parameters"}
        name: Any = entry.get("fault")
        try:
            fault_class(name)
        except UsageError as error:
            raise self._fail(f"fault[{index}].fault", error.message, error.hint) from None
        allowed = parameters_of(name)
        parameters = {}
        for key in [key for key in entry if key not in known]:
            if key not in allowed:
                near = difflib.get_close_matches(key, [*allowed, *known], 1)
                hint = (
                    f"did you mean {near[0]}? " if near else ""
                ) + f"{name} takes {', '.join(allowed) or 'none'}"
                raise self._fail(f"fault[{index}].{key}", f"{name} has no such parameter", hint)
            try:
                parameters[allowed[key]] = parameter_value(name, allowed[key], entry.pop(key))
            except UsageError as error:
                raise self._fail(f"fault[{index}].{key}", error.message, error.hint) from None
        entry["parameters"] = parameters

    def _check_header(self, scenario: Scenario) -> None:
        header = scenario.scenario
        for name in header.anomalies:
            if name not in ANOMALIES:
                hint = nearest(name, list(ANOMALIES), "anomalies are")
                raise self._fail("scenario.anomalies", f"{name!r} is not an anomaly", hint)
        if (header.expect == "invalid") != bool(header.anomalies):
            raise self._fail(
                "scenario.expect",
                f'expect = "{header.expect}" with anomalies {header.anomalies}',
                "name anomalies if and only if the expected verdict is invalid",
            )
        if scenario.walkthrough is not None:
            self._check_walkthrough(scenario, scenario.walkthrough)
        elif not scenario.workload and scenario.app is None:
            raise self._fail("workload", "is missing", "add a [[workload]]: without one nothing is compared")

    def _check_walkthrough(self, scenario: Scenario, part: WalkthroughPart) -> None:
        if part.steps not in WALKTHROUGHS:
            hint = nearest(part.steps, list(WALKTHROUGHS), "walkthroughs are")
            raise self._fail("walkthrough.steps", f"there is no walkthrough {part.steps!r}", hint)
        if bool(part.source) != bool(part.group):
            raise self._fail("walkthrough.source", "source and group belong together", "name both or neither")
        for key, given in (("workload", scenario.workload), ("fault", scenario.fault)):
            if given:
                raise self._fail(
                    key, f"a walkthrough has its own {key}", f"remove [[{key}]] or [walkthrough]"
                )

    def _check_keys(self, written: dict[str, Any], index: int) -> None:
        """Refuse a key that no workload has; the hint names those of its kind."""
        kind: Any = written.get("kind")
        used = USED_BY.get(kind) if isinstance(kind, str) else None
        for key in written:
            if used is not None and key not in keys_of(Workload):
                hint = nearest(key, sorted(used | USED_BY_ALL), f"{kind} clients use")
                raise self._fail(f"workload[{index}].{key}", "there is no such key", hint)

    def _check_workload(self, workload: Workload, written: dict[str, Any], index: int) -> None:
        place = f"workload[{index}]"
        for key in written:
            if key not in USED_BY[workload.kind] | USED_BY_ALL:
                used = ", ".join(sorted(USED_BY[workload.kind] | USED_BY_ALL))
                raise self._fail(
                    f"{place}.{key}", f"{workload.kind} clients do not use it", f"they use {used}"
                )
        bugs = [name for name, bug in BUGS.items() if workload.kind in bug.kinds]
        if workload.planted_bug and workload.planted_bug not in bugs:
            raise self._fail(
                f"{place}.planted_bug",
                f"{workload.kind} clients have no planted bug {workload.planted_bug!r}",
                nearest(workload.planted_bug, bugs, "their bugs are"),
            )
        if workload.kind == "pipeline" and not (workload.source and workload.group):
            raise self._fail(
                place, "a pipeline needs source and group", 'add source = "orders", group = "workers"'
            )
        for key, given in (("changelog", workload.changelog), ("positions", workload.positions == "apart")):
            if given and not workload.transactions:
                raise self._fail(
                    f"{place}.{key}", "needs transactions", f"remove {key}, or transactions = false"
                )

    def _parse_target(self, entry: dict[str, Any], index: int) -> None:
        if "target" not in entry:
            return  # the conversion to FaultEntry reports that the key is missing
        try:
            entry["target"] = Target.parse(entry["target"])
        except UsageError as error:
            raise self._fail(f"fault[{index}].target", error.message, error.hint) from None

    def _check_fault(self, entry: FaultEntry, index: int) -> None:
        place = f"fault[{index}]"
        try:
            fault_class(entry.fault).check_target(entry.target)
        except UsageError as error:
            raise self._fail(f"{place}.target", error.message, error.hint) from None
        self._check_parameters(entry, place)
        if entry.throughout and entry.at is not None:
            raise self._fail(
                f"{place}.at", "a fault that lasts throughout has no start time", "remove at or throughout"
            )

    def _check_parameters(self, entry: FaultEntry, place: str) -> None:
        if missing := missing_parameter(entry):
            hint = f"{entry.fault} takes {', '.join(parameters_of(entry.fault))}"
            raise self._fail(f"{place}.{missing}", f"{entry.fault} needs {missing}", hint)
        try:
            make_fault(entry)
        except HarnessError as error:
            raise self._fail(place, error.message, error.hint) from None

    def _check_pipelines(self, scenario: Scenario) -> None:
        written = {w.topic for w in scenario.workload if w.kind != "reader"}
        for index, workload in enumerate(scenario.workload):
            needed = workload.source if workload.kind == "pipeline" else ""
            if needed and needed not in written:
                raise self._fail(
                    f"workload[{index}].source",
                    f"no workload writes {needed!r}",
                    "add a producer of that topic",
                )
        pipelines = [w for w in scenario.workload if w.kind == "pipeline"]
        sources = {(w.source, w.group, w.changelog) for w in pipelines}
        if len(sources) > 1:
            hint = "use one source, one group and one changelog per scenario"
            raise self._fail("workload", "pipelines differ in source, group or changelog", hint)
