"""The list of a run's clients: who writes it, what it records, and what a check finds in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from harness.base.errors import WaitTimeoutError
from harness.base.processes import ProcessState
from harness.clients.client_spec import ReaderSpec
from harness.evidence import manifest
from harness.evidence.checkers.check_run import check_run, evidence_of
from harness.evidence.checkers.client_ends import check_clients
from harness.evidence.checkers.model import Collector, Evidence, Expect, Verdict
from harness.evidence.checkers.promises import promises_of
from harness.evidence.client_list import FILE, ClientList, ClientListWriter
from harness.evidence.history import HistoryWriter, history_files
from harness.evidence.ledger import fold
from harness.evidence.run_directory import RunDirectory
from harness.faults.client_faults import CrashClient
from harness.run import fleet as fleet_module
from harness.run.fault_runner import FaultRunner
from harness.run.fleet import Fleet
from tests.planted.cases_ends import UNKNOWN
from tests.unit.test_run_directory import make_run, seal

RUN = "r7k2m9qa"


def listed_in(directory: RunDirectory) -> dict[str, dict[str, Any]]:
    """Return the records of clients.json by the client's name, without times."""
    records = msgspec.json.decode((directory.path / FILE).read_bytes())["clients"]
    return {
        record.pop("name"): {k: v for k, v in record.items() if k not in ("started", "at")}
        for record in records
    }


def reasons_in(run: RunDirectory) -> list[str]:
    """Return the reasons about clients in a run whose files were changed before its manifest was written."""
    seal(run)
    return reasons_of(evidence_of(run))


def reasons_of(evidence: Evidence) -> list[str]:
    out = Collector("coverage", "things")
    check_clients(evidence, out)
    return out.reasons


@pytest.fixture
def whole_run(tmp_path: Path) -> RunDirectory:
    """Provide a run with one client, its own histories, and a list of clients."""
    run = make_run(tmp_path)
    run.write("expect.json", Expect(witnesses=["reader"], clients=True))
    for role in ("observer", "faults"):
        HistoryWriter(run.histories / f"{role}.jsonl", run=RUN, client=role, role=role).close()
    written = ClientListWriter(run, RUN)
    written.add("p-1", "idempotent", 1)
    written.end("p-1", "stopped", exit_code=0)
    manifest.write(run, RUN, promises_of(run))
    return run


def test_a_run_whose_clients_all_ended_as_intended_is_valid(whole_run: RunDirectory) -> None:
    _, judgement = check_run(whole_run.path)
    assert judgement.verdict is Verdict.VALID


def test_a_promised_list_that_is_missing_makes_the_run_unknown(whole_run: RunDirectory) -> None:
    (whole_run.path / FILE).unlink()
    seal(whole_run)
    _, judgement = check_run(whole_run.path)
    assert judgement.verdict is Verdict.UNKNOWN
    assert any("clients.json is missing" in reason for r in judgement.results for reason in r.reasons)


def test_a_run_of_an_earlier_release_needs_no_list(whole_run: RunDirectory) -> None:
    (whole_run.path / FILE).unlink()
    whole_run.write("expect.json", {"witnesses": ["reader"]})
    manifest.write(whole_run, RUN, promises_of(whole_run))
    _, judgement = check_run(whole_run.path)
    assert judgement.verdict is Verdict.VALID


@pytest.mark.parametrize("name", ["p-1", "observer", "faults"])
def test_a_missing_history_is_named(name: str, whole_run: RunDirectory) -> None:
    (whole_run.histories / f"{name}.jsonl").unlink()
    [reason] = reasons_in(whole_run)
    assert name in reason
    assert "missing" in reason


def test_the_list_of_another_run_is_named(whole_run: RunDirectory) -> None:
    text = (whole_run.path / FILE).read_bytes().replace(RUN.encode(), b"otherrun")
    (whole_run.path / FILE).write_bytes(text)
    assert "belongs to run otherrun" in reasons_in(whole_run)[0]


def test_the_history_of_another_producer_is_named(whole_run: RunDirectory) -> None:
    text = (whole_run.path / FILE).read_text().replace('"producer": 1', '"producer": 7')
    (whole_run.path / FILE).write_text(text)
    [reason] = reasons_in(whole_run)
    assert "declares producer 1, but the client is producer 7" in reason


@pytest.mark.parametrize("name", ["observer", "faults"])
def test_a_history_of_a_killed_run_is_named(name: str, whole_run: RunDirectory) -> None:
    path = whole_run.histories / f"{name}.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    [reason] = reasons_in(whole_run)
    assert f"the history of {name} has no closing line" in reason


def test_a_reason_names_exit_code_closing_line_and_last_line_of_the_log(whole_run: RunDirectory) -> None:
    written = ClientListWriter(whole_run, RUN)
    written.add("p-1", "idempotent", 1)
    written.end("p-1", "by itself", exit_code=137, last_line="out of memory")
    [reason] = reasons_in(whole_run)
    assert reason == (
        "client p-1 ended by itself with exit code 137; its history ends with the closing line 'done', "
        "the last line of its log is 'out of memory'"
    )


def test_the_list_exists_from_the_start_and_the_first_end_of_a_client_stays(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    written = ClientListWriter(run, RUN)
    assert listed_in(run) == {}
    written.add("p-1", "idempotent", 1)
    assert listed_in(run) == {"p-1": {"kind": "idempotent", "producer": 1}}
    written.end("p-1", "by a fault", fault="faults-1")
    written.end("p-1", "killed")
    written.end("p-2", "killed")
    assert listed_in(run)["p-1"]["ended"] == "by a fault"
    read = run.read(FILE, ClientList)
    assert read.run == RUN
    assert read.clients[0].at >= read.clients[0].started > 0


class ProcessStub:
    """Stub of a client process. `ends` is the exit code after a stop request; None means that it hangs."""

    def __init__(self, name: str, *, ends: int | None = 0, code: int | None = None) -> None:
        self.spec = ReaderSpec(
            run=RUN, client=name, bootstrap="b", history="h", seconds=1.0, number=4, topics=["t"]
        )
        self.folder = Path()
        self.pid, self.mark = 1, "mark"
        self._ends, self._code = ends, code

    def start(self) -> None:
        """Do nothing: the stub is already running."""

    def state(self) -> ProcessState:
        return ProcessState.RUNNING if self._code is None else ProcessState.GONE

    def exit_code(self) -> int | None:
        return self._code

    def last_line(self) -> str:
        return f"last line of {self.spec.client}"

    def stop(self) -> int:
        if self._ends is None:
            raise WaitTimeoutError("it hangs", "look")
        self._code = self._ends
        return self._ends

    def kill(self) -> bool:
        was_running = self._code is None
        self._code = 137 if was_running else self._code
        return was_running


def fleet_of(directory: RunDirectory, *clients: ProcessStub) -> Fleet:
    written = ClientListWriter(directory, RUN)
    nothing: Any = None
    fleet = Fleet(nothing, nothing, RUN, 1, directory.histories, Path(), written)
    for client in clients:
        written.add(client.spec.client, client.spec.kind, client.spec.number)
        fleet.clients.append(cast(Any, client))
    return fleet


@pytest.mark.parametrize(("opens", "code"), [(True, None), (False, 1)])
def test_a_successor_has_its_history_or_has_ended_before_the_next_fault(
    opens: bool, code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    fleet = fleet_of(run, ProcessStub("r-1", code=137))
    asked: list[str] = []

    class Successor:
        folder = tmp_path

        def __init__(self, spec: ReaderSpec, _: Path) -> None:
            self.spec = spec

        def start(self) -> None: ...

        def exit_code(self) -> int | None:
            asked.append(self.spec.client)
            if opens and len(asked) == 3:
                Path(self.spec.history).touch()
            return code

    monkeypatch.setattr("harness.run.fleet.ClientProcess", Successor)
    fleet.replace(fleet.clients[0])

    assert fleet.clients[-1].spec.client == "r-1~1"
    assert Path(fleet.clients[-1].spec.history).exists() is opens
    assert len(asked) == (3 if opens else 1)


def test_a_fleet_records_how_each_of_its_clients_ended(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    crashed, died = ProcessStub("r-1", code=137), ProcessStub("r-2", code=1)
    good, bad, hung = ProcessStub("r-3"), ProcessStub("r-4", ends=1), ProcessStub("r-5", ends=None)
    fleet = fleet_of(run, crashed, died, good, bad, hung)

    fleet.note_fault(cast(Any, crashed), "faults-0001")
    failed = fleet.stop(readers=True)
    fleet.kill()

    assert [client.spec.client for client in failed] == ["r-1", "r-2", "r-4", "r-5"]
    ends = {
        name: (record["ended"], record.get("exit_code"), record.get("fault", ""))
        for name, record in listed_in(run).items()
    }
    assert ends == {
        "r-1": ("by a fault", 137, "faults-0001"),
        "r-2": ("by itself", 1, ""),
        "r-3": ("stopped", 0, ""),
        "r-4": ("stopped", 1, ""),
        "r-5": ("killed", 137, ""),
    }
    assert listed_in(run)["r-4"]["last_line"] == "last line of r-4"
    assert not reasons_about(run, "r-3")
    assert "exit code 1" in reasons_about(run, "r-4")[0]


def reasons_about(run: RunDirectory, name: str) -> list[str]:
    """Return the reasons about one client of a run. Every listed client gets an empty history."""
    for client in listed_in(run):
        path = run.histories / f"{client}.jsonl"
        if not path.exists():
            HistoryWriter(path, run=RUN, client=client, role="reader").close()
    evidence = Evidence(fold(history_files(run.histories)), [], clients=run.read(FILE, ClientList))
    return [reason for reason in reasons_of(evidence) if f"client {name} " in reason]


def test_a_run_that_is_torn_down_early_records_which_clients_it_killed(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    fleet = fleet_of(run, ProcessStub("r-1"), ProcessStub("r-2", code=9))
    fleet.kill()
    assert {name: record["ended"] for name, record in listed_in(run).items()} == {
        "r-1": "killed",
        "r-2": "by itself",
    }


def test_a_client_is_listed_before_its_process_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    fleet = fleet_of(run)

    class CannotStart:
        def __init__(self, *_: object) -> None:
            raise OSError("no more processes")

    monkeypatch.setattr(fleet_module, "ClientProcess", CannotStart)
    with pytest.raises(OSError, match="no more processes"):
        fleet._start(ProcessStub("r-1").spec)
    assert "no recorded end" in reasons_about(run, "r-1")[0]


def test_a_fault_that_ends_a_client_is_recorded_with_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    fleet = fleet_of(run, ProcessStub("r-1"))
    injection = SimpleNamespace(fault=CrashClient(), names=["r-1"], bite={}, ident="faults-0007")
    monkeypatch.setattr(
        "harness.run.fault_runner.Injection", lambda *_, **__: SimpleNamespace(start=lambda: injection)
    )
    monkeypatch.setattr("harness.run.fault_runner.make_fault", lambda _: CrashClient())
    monitor = SimpleNamespace(active=[])
    nothing: Any = None
    faults = FaultRunner(nothing, fleet, nothing, cast(Any, monitor), lambda _: None)
    step: Any = SimpleNamespace(
        entry=SimpleNamespace(fault="crash_client", target=SimpleNamespace(client="r-*")), seed=1
    )

    faults._inject(step, lambda _: None)

    assert listed_in(run)["r-1"] | {"last_line": ""} == {
        "kind": "reader",
        "producer": 4,
        "ended": "by a fault",
        "fault": "faults-0007",
        "last_line": "",
    }


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("a crash that is in no history", "client p1 is recorded as ended by fault 'f1', but no such fault"),
        ("a crash of another client", "client p3 is recorded as ended by fault 'f1', but no such fault"),
        ("a crash that a fault of another kind explains", "client p1 is recorded as ended by fault 'f1'"),
        ("a retired client that gave up", "client p1 ended after a fault but did not finish"),
        ("a retired client without a closing line", "client p1 ended after a fault but did not finish"),
        ("a client that stopped without a closing line", "ended after a stop request but did not finish"),
        ("a client that ended by itself without a closing line", "ended by itself but did not finish"),
        ("a client that raised an error", "the closing line 'raised AssertionError'"),
        ("a killed client on another clock", "did not end after the run had asked it to stop"),
    ],
)
def test_the_reason_of_a_planted_case_names_its_cause(label: str, reason: str) -> None:
    reasons = reasons_of(UNKNOWN[label].evidence())
    assert len([text for text in reasons if reason in text]) == 1, reasons
