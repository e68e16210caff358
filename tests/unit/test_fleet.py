"""The clients of a run as a fleet: successors of crashed clients, progress, and requests to stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.base.errors import WaitTimeoutError
from harness.base.units import Duration
from harness.run import fleet as fleet_module
from harness.run import program
from harness.run.program import measure_recovery
from harness.run.shutdown import StopRequest
from harness.scenario.model import Limits
from tests.unit.test_client_ends import ProcessStub, fleet_of
from tests.unit.test_run_directory import make_run


def test_a_successor_has_its_own_name_number_and_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    crashed = ProcessStub("r-1", code=137)
    fleet = fleet_of(run, crashed, ProcessStub("r-2"))

    class Started(ProcessStub):
        def __init__(self, spec: Any, folder: Path) -> None:
            super().__init__(spec.client, code=137)
            self.spec, self.folder = spec, folder

    monkeypatch.setattr(fleet_module, "ClientProcess", Started)
    fleet.replace(crashed)  # type: ignore[arg-type]
    fleet.replace(fleet.clients[-1])

    specs = [client.spec for client in fleet.clients[2:]]
    assert [(spec.client, spec.number) for spec in specs] == [("r-1~1", 5), ("r-1~2", 6)]
    assert [Path(spec.history).name for spec in specs] == ["r-1~1.jsonl", "r-1~2.jsonl"]
    assert [client.spec.client for client in fleet.active()] == ["r-2", "r-1~2"]


def client(name: str, kind: str, **progress: int) -> Any:
    numbers = {"acknowledged": 0, "committed": 0, "read": 0} | progress
    return SimpleNamespace(
        spec=SimpleNamespace(client=name, kind=kind),
        progress=lambda: SimpleNamespace(**numbers),
        exit_code=lambda: None,
    )


@pytest.mark.parametrize(("kind", "done"), [("reader", 5), ("pipeline", 0)])
def test_records_that_were_read_are_progress_of_a_reader_only(kind: str, done: int) -> None:
    assert fleet_module._done(client("c-1", kind, read=5)) == done


def test_what_a_client_had_done_before_is_no_progress(tmp_path: Path) -> None:
    fleet = fleet_of(make_run(tmp_path))
    fleet.clients = [client("c-1", "idempotent", acknowledged=7)]

    with pytest.raises(WaitTimeoutError, match=r"last seen: .*no progress of c-1"):
        fleet.wait_progress(lambda: False, 0.0)


def test_the_first_reason_to_stop_is_kept() -> None:
    stop = StopRequest()
    for reason in ("", "the guard found another cluster", "the time is over"):
        stop.make(reason)

    assert stop.reason == "the guard found another cluster"
    assert stop.is_set()


def recovering(wait_healthy: Callable[..., None]) -> tuple[Any, list[tuple[str, str]]]:
    """Return a run whose limit of recovery is 1 ms, and the phases that it reports."""
    lines: list[tuple[str, str]] = []
    run = SimpleNamespace(
        scenario=SimpleNamespace(limits=Limits(recovery=Duration(0.001))),
        cluster=SimpleNamespace(wait_healthy=wait_healthy),
        events=SimpleNamespace(phase=lambda name, text: lines.append((name, text))),
        stop=StopRequest(),
    )
    return run, lines


def test_a_recovery_that_never_ended_is_reported() -> None:
    def wait_healthy(*_: object, **__: object) -> None:
        raise WaitTimeoutError("2 brokers are missing", "look")

    run, lines = recovering(wait_healthy)
    [limit] = measure_recovery(run)

    assert (limit.name, limit.where) == ("recovery", "2 brokers are missing")
    assert "did not work again within" in msgspec.structs.replace(limit, limit=-1).breach
    assert lines == [("recover", "not recovered: 2 brokers are missing")]


def test_a_breached_limit_shows_the_time_that_was_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    clock = SimpleNamespace(monotonic=iter([10.0, 10.37]).__next__)
    monkeypatch.setattr(program, "time", clock)

    def wait_healthy(limit: float, **_: object) -> None:
        waited.append(limit)

    run, lines = recovering(wait_healthy)
    [limit] = measure_recovery(run, waited.append)

    assert waited == [60.0, 60.0], "a strict limit does not end the wait"
    assert not limit.held
    assert limit.measured == 0.37
    assert "needed" in limit.breach
    assert lines == []
