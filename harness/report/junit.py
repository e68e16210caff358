"""JUnit XML of a run. It is rewritten at every event, so that even a killed run leaves a complete file."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from harness.base.events import Event, Healed, Injected, NoBite, Started, VerdictEvent
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.run_directory import RunDirectory, write_atomic

_OPEN: Final = "the run ended without a verdict"


class JUnit:
    """Event listener that writes the events and the verdict of a run as one JUnit test suite.

    The suite has a test case for each injection, each checked property and each limit, and one for the
    verdict. If `as_expected`, the findings of a run that ended as its scenario expects are no failures.
    """

    def __init__(self, path: Path, *, as_expected: bool = False) -> None:
        self._path = path
        self._as_expected = as_expected
        self._suite = ElementTree.Element("testsuite")
        self._verdict = _case(self._suite, "verdict", error=_OPEN)
        self._healing: dict[str, ElementTree.Element] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._suite.set("name", event.scenario)
                for name, value in (("seed", event.seed), ("run", event.run)):
                    properties = self._suite.find("properties")
                    if properties is None:
                        properties = ElementTree.SubElement(self._suite, "properties")
                    ElementTree.SubElement(properties, "property", name=name, value=str(value))
            case Injected():
                name = f"{event.fault} on {', '.join(event.names)} at {event.at:.1f} s"
                self._healing[f"{event.fault} {event.names}"] = _case(self._suite, name, error="never healed")
            case Healed() if case := self._healing.pop(f"{event.fault} {event.names}", None):
                case.remove(case[0])
                case.set("time", f"{event.took_s:.3f}")
            case NoBite():
                _case(self._suite, f"{event.fault} at {event.at:.1f} s", error=event.reason)
            case VerdictEvent():
                self._add_results(event)
            case _:
                return
        self._write()

    def _add_results(self, event: VerdictEvent) -> None:
        self._suite.remove(self._verdict)
        judgement = RunDirectory.open(Path(event.directory)).read("verdict.json", Judgement)
        for result in judgement.results:
            problems = [f"{a.name}: {a.counted}" for a in result.anomalies] + result.reasons
            kind = {"invalid": "failure", "unknown": "error"}.get(str(result.verdict), "")
            kind = "" if self._as_expected and event.expected else kind
            case = _case(self._suite, result.property, **({kind: "; ".join(problems)} if kind else {}))
            ElementTree.SubElement(case, "system-out").text = "\n".join(
                [f"compared {result.compared} {result.unit}", *problems]
            )
        for limit in judgement.limits:
            problem = {"failure": f"{limit.comparison}: {limit.breach}"} if limit.breach else {}
            _case(self._suite, limit.name, **problem)
        surprise = {} if event.expected else {"failure": f"{event.verdict}, not as expected; {event.replay}"}
        _case(self._suite, f"verdict {event.verdict}", **surprise)

    def _write(self) -> None:
        cases = self._suite.findall("testcase")
        self._suite.set("tests", str(len(cases)))
        for kind in ("failure", "error"):
            self._suite.set(f"{kind}s", str(sum(case.find(kind) is not None for case in cases)))
        root = ElementTree.Element("testsuites")
        root.append(self._suite)
        ElementTree.indent(root)
        write_atomic(self._path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _case(suite: ElementTree.Element, name: str, **problem: str) -> ElementTree.Element:
    case = ElementTree.SubElement(suite, "testcase", name=name, classname=suite.get("name", "run"))
    for kind, message in problem.items():
        ElementTree.SubElement(case, kind, message=message)
    return case
