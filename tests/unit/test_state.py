"""The state directory of a cluster: one command at a time, atomic writes, errors that name the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from harness.base.errors import ExitCode, RefusedError, UsageError
from harness.cli.options import state_of
from harness.cluster.state_directory import ClusterRecord, State, default_state
from harness.provision.paths import checkout_dir

RECORD = ClusterRecord(name="eos-1", backend="process", profile="quick", cluster_id="c", port_base=12_000)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


def test_a_saved_record_is_loaded_and_forgotten(state: State) -> None:
    assert state.load() is None
    state.save(RECORD)
    assert state.load() == RECORD
    state.save(msgspec.structs.replace(RECORD, whole=True))
    assert State(state.path).load() == msgspec.structs.replace(RECORD, whole=True)
    state.forget()
    state.forget()
    assert state.load() is None
    assert list(state.path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:40], "Input data was truncated"),
        (lambda _: "", "truncated"),
        (lambda text: text.replace("{", '{"colour": "red",', 1), "colour"),
        (lambda text: text.replace('"process"', '"podman"'), "podman"),
        (lambda text: text.replace('"schema": 1', '"schema": 2'), "schema"),
        (lambda text: text.replace("12000", '"many"'), "port_base"),
    ],
)
def test_a_damaged_record_is_an_error_that_names_the_file(state: State, change: object, message: str) -> None:
    state.save(RECORD)
    file = state.path / "cluster.json"
    file.write_text(change(file.read_text()))  # type: ignore[operator]

    with pytest.raises(UsageError) as raised:
        state.load()

    assert raised.value.exit_code is ExitCode.USAGE
    assert raised.value.message.startswith(f"{file}: ")
    assert message in raised.value.message
    assert "eos down --force" in raised.value.hint


def test_a_reader_during_a_write_gets_a_complete_record(state: State) -> None:
    state.save(RECORD)
    longer = msgspec.structs.replace(RECORD, images={"kafka": "x" * 100_000})
    done = threading.Event()
    loaded: list[ClusterRecord | None] = []

    def read() -> None:
        while not done.is_set():
            loaded.append(state.load())

    reader = threading.Thread(target=read)
    reader.start()
    for record in [longer, RECORD] * 50:
        state.save(record)
    done.set()
    reader.join()

    assert loaded
    assert all(record in (RECORD, longer) for record in loaded)


def test_a_failed_write_keeps_the_old_record(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    state.save(RECORD)

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        state.save(msgspec.structs.replace(RECORD, whole=True))
    assert state.load() == RECORD


def test_a_second_command_is_refused_with_the_name_of_the_first(state: State) -> None:
    with state.locked("up"):
        with pytest.raises(RefusedError) as raised, state.locked("down"):
            pytest.fail("both hold the cluster")
        assert raised.value.exit_code is ExitCode.REFUSED
        assert f"`eos up` (process {os.getpid()})" in raised.value.message
        assert "--state" in raised.value.hint
    with state.locked("down"):
        pass


def test_a_killed_command_holds_no_lock(state: State) -> None:
    script = (
        "import os, sys; from pathlib import Path; from harness.cluster.state_directory import State\n"
        "with State(Path(sys.argv[1])).locked('up'):\n    os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(state.path)], check=False, timeout=30)
    assert "`eos up`" in (state.path / "lock").read_text()

    with state.locked("down"):
        assert (state.path / "lock").read_text() == f"`eos down` (process {os.getpid()})"


def test_another_directory_is_another_cluster(state: State, tmp_path: Path) -> None:
    with state.locked("up"), State(tmp_path / "other").locked("up"):
        pass


def test_a_relative_path_and_a_link_are_the_same_cluster(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.path.mkdir()
    (tmp_path / "link").symlink_to(state.path)
    monkeypatch.chdir(tmp_path)
    assert State(Path("state")).path == State(tmp_path / "link").path == state.path


def test_the_environment_can_set_the_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EOS_STATE", raising=False)
    assert default_state() == checkout_dir() / ".eos"
    monkeypatch.setenv("EOS_STATE", "/elsewhere")
    assert default_state() == Path("/elsewhere")


def test_the_record_is_indented_json(state: State) -> None:
    state.save(RECORD)
    text = (state.path / "cluster.json").read_text()
    assert json.loads(text)["backend"] == "process"
    assert text.endswith("}\n")


def test_a_claimed_directory_is_a_state_directory_for_later_commands(state: State) -> None:
    state.path.mkdir()
    (state.path / "audit.jsonl").touch()
    with pytest.raises(UsageError, match="is not a state directory"):
        state_of(state.path)
    state.claim()
    assert state_of(state.path).path == state.path
