"""The application under test: real child processes are started, restarted, limited and ended whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.app.app_spec import AppLimits, AppSpec, ReadyCheck, RestartLimit, StopRule
from harness.app.launch_template import Placeholder
from harness.app.supervisor import AppSupervisor
from harness.base.errors import HarnessError, UsageError, WaitTimeoutError
from harness.base.process_trees import end_tree, find_tree, send_to_tree
from harness.base.processes import ProcessState
from harness.base.units import Duration, Size, Span
from harness.base.waits import wait_until
from harness.evidence.app_list import AppList, AppListWriter, AppStart
from harness.evidence.run_directory import RunDirectory

PAUSE = "import signal; print('ready at last', flush=True); signal.pause()"
RUN = "r7k2m9qa"

Make = Callable[..., AppSupervisor]


def names(found: Placeholder) -> str:
    return {"bootstrap": "127.0.0.1:9092", "group": "workers.run"}.get(found.name, f"{found.argument}.run")


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, log: list[str]) -> Iterator[Make]:
    """Yield a function that makes a supervisor of a Python program; end its processes afterwards."""
    made: list[AppSupervisor] = []

    def supervisor(program: str, *arguments: str, **fields: Any) -> AppSupervisor:
        group_ready = fields.pop("group_ready", lambda: True)
        command = fields.pop("command", [sys.executable, "-c", program, *arguments])
        spec = AppSpec(command=command, **{"directory": str(tmp_path), **fields})
        starts = AppListWriter(RunDirectory(tmp_path), RUN)
        folder = tmp_path / "apps"
        made.append(
            AppSupervisor(spec, folder, names, starts=starts, log=log.append, group_ready=group_ready)
        )
        return made[-1]

    yield supervisor
    for each in made:
        each.kill()
    assert end_tree(f"{tmp_path}/") == 0


def starts_in(tmp_path: Path) -> list[AppStart]:
    return msgspec.json.decode((tmp_path / "app.json").read_bytes(), type=AppList).starts


def test_an_instance_gets_its_values_and_ends_on_request(make: Make, tmp_path: Path) -> None:
    app = make(
        "import os, sys, json, signal\n"
        "names = ('GROUP', 'EOS_START', 'PYTHON')\n"
        "print(json.dumps([sys.argv[1:], *map(os.environ.get, names)]), flush=True)\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); signal.pause()",
        *("{bootstrap}", "{topic:orders}", "{instance}", "{{group}}", "${group}", "{file:app.yml}"),
        env={"GROUP": "{group}", "PYTHON": "{python}"},
        files={"app.yml": "servers: {bootstrap}\nother: {anything}\nstate: {state}\n"},
        ready=ReadyCheck(log=r"first"),
    )
    app.start()
    app.wait_ready()
    (instance,) = app.instances
    arguments, group, start, python = json.loads(instance.last_line())
    rendered = Path(arguments.pop())
    assert arguments == ["127.0.0.1:9092", "orders.run", "app-1", "{group}", "${group}"]
    assert (group, start, python) == ("workers.run", "first", sys.executable)
    state = instance.state_folder
    assert rendered.read_text() == f"servers: 127.0.0.1:9092\nother: {{anything}}\nstate: {state}\n"
    assert app.stop() == []
    (ended,) = starts_in(tmp_path)
    assert (ended.ended, ended.exit_code, ended.number) == ("stopped", 0, 1)


def test_an_instance_that_ends_is_restarted_and_keeps_its_state(
    make: Make, tmp_path: Path, log: list[str]
) -> None:
    app = make(
        "import os, sys, pathlib, signal\n"
        "note = pathlib.Path(sys.argv[1], 'note')\n"
        "print(os.environ['EOS_START'], note.exists(), flush=True)\n"
        "if not note.exists(): note.touch(); sys.exit(3)\n"
        "signal.pause()",
        "{state}",
        backoff=Span(0.1, 0.2),
        ready=ReadyCheck(log="again True"),
    )
    app.start()
    app.wait_ready()
    first, second = starts_in(tmp_path)
    assert (first.ended, first.exit_code, first.last_line) == ("by itself", 3, "first False")
    assert (second.number, second.ended) == (2, "")
    assert log == ["app-1 ended with exit code 3; its last line: first False; restart in 0.1 s"]


def test_restarts_back_off_and_have_a_limit(make: Make, tmp_path: Path, log: list[str]) -> None:
    app = make("exit(7)", backoff=Span(0.05, 0.15), most_restarts=RestartLimit.parse("3 in 60s"))
    app.start()
    wait_until(lambda: len(log) == 4, 30, "the supervisor to give up")
    with pytest.raises(HarnessError, match="does not run: app-1 ended with exit code 7"):
        app.wait_ready()
    assert app.is_ready(), "an instance that is not restarted is not wanted"
    assert [re.findall(r"restart in (.*)", line) for line in log] == [["0.05 s"], ["0.1 s"], ["0.15 s"], []]
    assert "restarted 3 in 60s already" in log[-1]
    assert [start.exit_code for start in starts_in(tmp_path)] == [7, 7, 7, 7]


@pytest.mark.parametrize(
    ("policy", "code", "restarted"),
    [
        pytest.param("always", 0, True, id="always"),
        pytest.param("on-failure", 1, True, id="failed"),
        pytest.param("on-failure", 0, False, id="succeeded"),
        pytest.param("never", 1, False, id="never"),
    ],
)
def test_the_restart_policy_decides(
    make: Make, tmp_path: Path, *, policy: str, code: int, restarted: bool
) -> None:
    app = make(
        "import os, sys, signal\n"
        "if os.environ['EOS_START'] == 'first': sys.exit(int(sys.argv[1]))\n"
        "signal.pause()",
        str(code),
        restart=policy,
        backoff=Span(0.05, 0.1),
    )
    app.start()
    wait_until(lambda: starts_in(tmp_path)[0].ended, 30, "the end to be noticed")
    if restarted:
        wait_until(lambda: len(starts_in(tmp_path)) == 2, 30, "a restart")
    else:
        with pytest.raises(HarnessError, match="does not run"):
            app.wait_ready()
    assert len(starts_in(tmp_path)) == 1 + restarted


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param(["no-such-program"], "No such file or directory", id="unknown"),
        pytest.param(["/"], "Permission denied", id="not-executable"),
    ],
)
def test_a_command_that_cannot_be_started_is_named(
    make: Make, log: list[str], command: list[str], reason: str
) -> None:
    app = make("", command=command, restart="never")
    app.start()
    wait_until(lambda: log, 30, "the supervisor to give up")
    with pytest.raises(HarnessError, match=f"exit code 127 .*{reason}"):
        app.wait_ready()


def test_a_fault_holds_an_instance_until_it_is_released(make: Make, tmp_path: Path) -> None:
    app = make(PAUSE, backoff=Span(0.05, 0.05), instances=2, ready=ReadyCheck(log="ready"))
    app.start()
    app.wait_ready()
    victim = app.choose("*-2", 1)
    app.hold(victim.name, "fault-1")
    send_to_tree(victim.mark, signal.SIGKILL)
    wait_until(lambda: victim.exit() is not None, 10, "the instance to end")
    app.note_fault(victim.name, "fault-1")
    other = app.choose("*-1", 1)
    send_to_tree(other.mark, signal.SIGKILL)
    wait_until(lambda: other.number == 2, 10, "the supervisor to restart the other instance")
    assert victim.number == 1
    with pytest.raises(UsageError, match="no running instance of the application matches 'app-2'"):
        app.choose("app-2", 1)
    app.release(victim.name)
    wait_until(lambda: victim.number == 2, 10, "a restart")
    app.wait_ready()
    killed = next(start for start in starts_in(tmp_path) if start.instance == "app-2" and start.ended)
    assert (killed.instance, killed.ended, killed.fault) == ("app-2", "by a fault", "fault-1")
    assert killed.exit_code == 128 + signal.SIGKILL


def test_an_instance_that_ends_by_itself_before_a_fault_is_restarted_as_usual(
    make: Make, tmp_path: Path
) -> None:
    app = make(
        "raise SystemExit(3)",
        backoff=Span(0.05, 0.05),
        most_restarts=RestartLimit.parse("1 in 60s"),
        ready=ReadyCheck(log="never"),
    )
    app.hold("app-1", "")
    app.start()
    (instance,) = app.instances
    wait_until(lambda: instance.exit() is not None, 20, "the instance to end")
    app.unhold("app-1")
    with pytest.raises(HarnessError, match="restarted 1 in 60s already"):
        app.wait_ready()
    assert [(start.ended, start.fault) for start in starts_in(tmp_path)] == [("by itself", "")] * 2


def test_children_of_a_shell_are_stopped_and_killed_with_it(make: Make) -> None:
    app = make(
        "", command=["sh", "-c", f'{sys.executable} -c "{PAUSE}" & wait'], ready=ReadyCheck(log="ready")
    )
    app.start()
    app.wait_ready()
    (instance,) = app.instances
    assert instance.process_count() == 2
    assert app.stop() == []
    assert instance.state() is ProcessState.GONE


def test_children_that_outlive_the_first_process_are_ended(make: Make) -> None:
    app = make("", command=["sh", "-c", f"{sys.executable} -c '{PAUSE}' &"], restart="never")
    app.start()
    wait_until(lambda: app.instances[0].exit() is not None, 20, "the shell to end")
    assert app.instances[0].state() is ProcessState.GONE


def test_an_instance_that_ignores_the_request_is_killed_and_named(make: Make, tmp_path: Path) -> None:
    app = make(
        f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {PAUSE}",
        stop=StopRule.parse("SIGTERM 300ms"),
        ready=ReadyCheck(log="ready"),
    )
    app.start()
    app.wait_ready()
    assert app.stop() == ["app-1 did not stop within 300ms of SIGTERM, so it was killed"]
    assert starts_in(tmp_path)[0].ended == "killed"


def test_a_frozen_instance_is_stopped_too(make: Make) -> None:
    app = make(PAUSE, ready=ReadyCheck(log="ready"))
    app.start()
    app.wait_ready()
    (instance,) = app.instances
    send_to_tree(instance.mark, signal.SIGSTOP)
    wait_until(lambda: instance.state() is ProcessState.STOPPED, 10, "it to freeze")
    assert app.stop() == []
    assert instance.state() is ProcessState.GONE


def test_the_log_has_a_limit_and_keeps_the_newest_lines(make: Make) -> None:
    limit = 20_000
    app = make(
        f"for i in range(20_000): print('line', i)\n{PAUSE}",
        limits=AppLimits(log=Size(limit)),
        ready=ReadyCheck(log="^ready"),
    )
    app.start()
    app.wait_ready()
    (instance,) = app.instances
    text = instance.log()
    assert len(text) <= limit
    assert text.splitlines()[-2:] == ["line 19999", "ready at last"]
    assert "line 100\n" not in text
    written = sum(len(f"line {i}\n") for i in range(20_000))
    dropped = int(text.split()[3])
    assert text.startswith(f"--- the first {dropped} bytes were dropped, because limits.log was reached\n")
    assert written - limit < dropped < written


def test_an_instance_that_uses_too_much_memory_is_ended(make: Make, tmp_path: Path) -> None:
    app = make(
        f"block = b'x' * 300_000_000; {PAUSE}", limits=AppLimits(memory=Size(200_000_000)), restart="never"
    )
    app.start()
    wait_until(lambda: app.instances[0].exit() is not None, 30, "the limit to be applied")
    app.stop()
    assert "of memory, and its limit is 190 MiB" in starts_in(tmp_path)[0].reason


def test_an_instance_is_ready_when_its_port_accepts_connections(make: Make) -> None:
    server = (
        "import http.server, sys, time\n"
        "time.sleep(0.3)\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)"
        ".serve_forever()"
    )
    by_port = make(server, "{port:admin}", ready=ReadyCheck(port="admin"))
    by_port.start()
    by_port.wait_ready()
    address = f"http://127.0.0.1:{by_port.instances[0].port('admin')}"
    by_port.kill()
    by_http = make(server, "{port:web}", name="web", ready=ReadyCheck(http="http://127.0.0.1:{port:web}/"))
    by_http.start()
    by_http.wait_ready()
    assert by_http.instances[0].text("http://127.0.0.1:{port:web}") != address


def test_an_instance_is_ready_when_a_command_succeeds(make: Make) -> None:
    app = make(
        "import pathlib, sys, time, signal; time.sleep(0.5); pathlib.Path(sys.argv[1], 'up').touch()\n"
        "signal.pause()",
        "{state}",
        ready=ReadyCheck(command=["test", "-e", "{state}/up"]),
    )
    app.start()
    app.wait_ready()
    assert app.is_ready()
    assert (app.instances[0].state_folder / "up").exists()


def test_the_group_decides_by_default_if_there_is_one(make: Make) -> None:
    answers = iter([False, False, True])
    app = make(PAUSE, group="workers", group_ready=lambda: next(answers))
    app.start()
    app.wait_ready()
    assert next(answers, "none left") == "none left"


def test_an_instance_that_is_never_ready_is_described(make: Make) -> None:
    app = make(
        f"print('no broker answers'); {PAUSE}",
        limits=AppLimits(start=Duration(0.5)),
        ready=ReadyCheck(log="started"),
    )
    app.start()
    wait_until(lambda: "at last" in app.instances[0].log(), 20, "the output")
    with pytest.raises(WaitTimeoutError) as raised:
        app.wait_ready()
    assert "not ready: app-1; its last lines: no broker answers; ready at last" in raised.value.message
    assert not app.is_ready()


HARNESS = """
import sys, time
from pathlib import Path
from harness.app.app_spec import AppSpec, ReadyCheck
from harness.app.supervisor import AppSupervisor
from harness.evidence.app_list import AppListWriter
from harness.evidence.run_directory import RunDirectory
folder = Path(sys.argv[1])
spec = AppSpec(command=["sh", "-c", "sleep 1000 & sleep 1000"], directory=str(folder))
starts = AppListWriter(RunDirectory(folder), "r7k2m9qa")
app = AppSupervisor(spec, folder / "apps", str, starts=starts, log=print)
app.start()
print("started", flush=True)
time.sleep(1000)
"""


def test_the_tree_ends_when_the_harness_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path)], stdout=subprocess.PIPE, env=dict(os.environ)
    ) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"started\n"
        mark = f"{tmp_path}/apps/"
        wait_until(lambda: len(find_tree(mark)) == 3, 10, "the shell and its children")
        harness.kill()
    wait_until(lambda: not find_tree(mark), 10, "the tree to end")


def test_the_tree_is_found_when_harness_and_keeper_are_killed(make: Make) -> None:
    app = make("", command=["sh", "-c", "sleep 1000 & sleep 1000"])
    app.start()
    (instance,) = app.instances
    wait_until(lambda: instance.process_count() == 3, 10, "the shell and its children")
    app.hold("app-1", "fault-1")  # the supervisor would end the tree as soon as it notices the lost keeper
    os.kill(instance.keeper, signal.SIGKILL)
    assert instance.process_count() == 3
    ended = wait_until(instance.exit, 10, "the lost keeper to be noticed")
    assert ended.reason == "its keeper was killed"
    assert instance.state() is ProcessState.GONE


def test_a_later_start_can_have_another_command_and_an_instance_has_its_cores(
    make: Make, tmp_path: Path
) -> None:
    app = make(
        "exit(4)",
        again=[sys.executable, "-c", f"import os; print(os.sched_getaffinity(0), os.environ); {PAUSE}"],
        backoff=Span(0.05, 0.05),
        ready=ReadyCheck(log="ready"),
        limits=AppLimits(cores=1, memory=Size(400_000_000)),
    )
    app.start()
    app.wait_ready()
    assert [start.exit_code for start in starts_in(tmp_path)] == [4, None]
    text = app.instances[0].log()
    assert f"\n{{{min(os.sched_getaffinity(0))}}} environ" in text
    assert "-XX:MaxRAM=400000000 -XX:ActiveProcessorCount=1" in text


def test_instances_are_added_removed_and_restarted(make: Make, tmp_path: Path) -> None:
    app = make(
        f"import sys; signal_ = __import__('signal'); signal_.signal(15, lambda *_: sys.exit(0)); {PAUSE}",
        ready=ReadyCheck(log="ready"),
    )
    app.start()
    app.wait_ready()
    app.scale(3)
    app.wait_ready()
    assert app.running == ["app-1", "app-2", "app-3"]

    app.scale(1)
    assert app.running == ["app-1"]
    assert [each.state() for each in app.instances] == [ProcessState.RUNNING] + 2 * [ProcessState.GONE]

    app.scale(2)
    app.wait_ready()
    assert [each.number for each in app.instances] == [1, 2, 1]

    assert app.restart("app-1") == ""
    wait_until(lambda: app.instance("app-1").number == 2, 10, "a restart")
    app.wait_ready()
    assert [start.ended for start in starts_in(tmp_path)].count("stopped") == 3
