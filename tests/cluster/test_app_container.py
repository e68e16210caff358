"""An application in a container: it is started, frozen, limited and ended like a process tree."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.app.app_spec import AppLimits, AppSpec, ReadyCheck, StopRule
from harness.app.launch_template import Placeholder
from harness.app.supervisor import AppSupervisor
from harness.base.errors import ExitCode
from harness.base.processes import ProcessState, end_all
from harness.base.units import Size
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.app_list import AppList, AppListWriter
from harness.evidence.run_directory import RunDirectory
from harness.provision.app_processes import (
    app_container,
    describe_processes,
    end_processes,
    image_digest,
    send_signal,
)
from harness.provision.images import ensure_images
from harness.provision.jars import ensure_jars
from harness.run import make_run
from harness.run.environment import app_identity
from harness.run.run import Outcome
from harness.scenario import load
from harness.scenario.plan import draw

pytestmark = [pytest.mark.cluster, pytest.mark.engine]
SCRIPT = (
    "trap 'echo leaving; exit 0' TERM; echo $EOS_START $GREETING; touch $STATE/$EOS_START; ls $STATE; "
    "echo ready; while true; do sleep 0.1; done"
)

Make = Callable[..., AppSupervisor]


def names(_: Placeholder) -> str:
    return "127.0.0.1:9092"


@pytest.fixture(scope="module")
def image() -> str:
    return ensure_images(print).kafka


@pytest.fixture
def make(tmp_path: Path, image: str) -> Iterator[Make]:
    """Yield a function that makes a supervisor of containers; remove the containers afterwards."""
    made: list[AppSupervisor] = []

    def supervisor(**fields: Any) -> AppSupervisor:
        env = {"GREETING": "hello {instance}", "STATE": "{state}"}
        changes = {"image": image, "directory": str(tmp_path), "ready": ReadyCheck(log="ready")} | fields
        spec = AppSpec(**({"command": ["bash", "-c", SCRIPT], "env": env} | changes))
        starts = AppListWriter(RunDirectory(tmp_path), "r7k2m9qa")
        made.append(AppSupervisor(spec, tmp_path / "apps", names, starts=starts, log=print))
        made[-1].start()
        made[-1].wait_ready()
        return made[-1]

    yield supervisor
    for each in made:
        each.kill()
    assert end_processes(f"{tmp_path}/apps/") == 0


def test_a_container_is_frozen_killed_and_stopped_and_keeps_its_state(make: Make) -> None:
    app = make(limits=AppLimits(cores=1, memory=Size(300_000_000)))
    (instance,) = app.instances
    assert "first hello app-1" in instance.log()
    assert host_config(app) == ["host", "300000000", "1000000000"]

    send_signal(instance.mark, signal.SIGSTOP)
    assert instance.state() is ProcessState.STOPPED
    send_signal(instance.mark, signal.SIGCONT)
    assert instance.state() is ProcessState.RUNNING

    app.hold("app-1", "fault-1")
    send_signal(instance.mark, signal.SIGKILL)
    ended = wait_until(instance.exit, 20, "the container to end")
    assert ended.code == 128 + signal.SIGKILL
    app.release("app-1")
    wait_until(lambda: instance.number == 2, 20, "a restart")
    app.wait_ready()
    assert "again\nfirst" in instance.log(), "the second start sees the state of the first one"

    assert app.stop() == []
    assert instance.last_line() == "leaving"
    assert describe_processes(f"{instance.folder}/") == []


def test_a_service_of_a_compose_file_uses_the_network_of_this_host(
    make: Make, tmp_path: Path, image: str
) -> None:
    (tmp_path / "stack.yml").write_text(
        f"services:\n  billing:\n    image: {image}\n    ports: ['9092:9092']\n    networks: [inside]\n"
        "    depends_on: [database]\n  database: {image: no-such-image}\nnetworks: {inside: {}}\n"
    )
    app = make(image="", compose="stack.yml#billing", limits=AppLimits(cores=1))
    assert host_config(app) == ["host", "1000000000", "1000000000"]
    assert app_identity(app.spec)[image] == image_digest(image)
    assert re.fullmatch("sha256:[0-9a-f]{64}", image_digest(image))
    assert app.stop() == []


def host_config(app: AppSupervisor) -> list[str]:
    """Return the network of the container, its limit of memory in bytes and of cores in billionths."""
    format_ = "{{.HostConfig.NetworkMode}} {{.HostConfig.Memory}} {{.HostConfig.NanoCpus}}"
    inspect = ["docker", "inspect", "--format", format_, app_container(app.instances[0].mark)]
    return subprocess.run(inspect, capture_output=True, text=True, timeout=30, check=True).stdout.split()


def test_a_container_beyond_its_memory_is_described(make: Make) -> None:
    grow = "echo ready; x=$(head -c 200000000 /dev/zero | tr '\\0' y); echo $x | wc -c"
    app = make(
        command=["bash", "-c", f"sleep 1; {grow}"],
        restart="never",
        limits=AppLimits(memory=Size(50_000_000)),
        stop=StopRule.parse("SIGTERM 5s"),
    )
    ended = wait_until(app.instances[0].exit, 60, "the container to end")
    assert "more than 47 MiB" in ended.reason


def test_a_container_ends_when_its_keeper_was_killed(make: Make) -> None:
    app = make()
    (instance,) = app.instances
    app.hold("app-1", "fault-1")  # the supervisor would start the next container
    end_all(f"{instance.folder}/")  # the keepers
    ended = wait_until(instance.exit, 30, "the end to be noticed")
    assert ended.reason == "its keeper was killed"
    assert describe_processes(f"{instance.folder}/") == []


LOOP = "trap 'kill $java; wait $java; exit' TERM; while :; do \"$@\" & java=$!; wait $java; done"
"""The copier exits whenever it has copied everything. This container does not, so each kill meets it."""


def containerised(file: Path, image: str) -> str:
    """Return a scenario of the copier, changed so that it runs in containers."""
    command = json.dumps(["sh", "-c", LOOP, "copier", "java"])[1:-1]
    text = file.read_text().replace('"{java}"', command)
    return text.replace("[app]", f'[app]\nimage = "{image}"')


def run_text(cluster: Cluster, folder: Path, text: str) -> Outcome:
    (folder / "copier.toml").write_text(text)
    scenario = load(folder / "copier.toml", {"verify.witnesses": '["reader"]'})
    return make_run(cluster, scenario, draw(scenario, 1), folder).execute()


def test_a_container_reaches_the_brokers_through_the_proxies(
    cluster: Cluster, tmp_path: Path, image: str
) -> None:
    text = containerised(COPIER, image).partition("[plan]")[0]
    outcome = run_text(cluster, tmp_path, f"{text}{KILLED}")

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    starts = RunDirectory.open(outcome.directory).read("app.json", AppList).starts
    assert any(start.ended == "by a fault" and start.exit_code == 128 + signal.SIGKILL for start in starts)
    assert describe_processes(f"{cluster.state.apps}/") == []


@pytest.mark.soak
def test_the_members_of_a_container_are_known(cluster: Cluster, tmp_path: Path, image: str) -> None:
    """The client ids of the copier do not name the instance: only the sockets of its processes do."""
    outcome = run_text(cluster, tmp_path, containerised(COPIER.with_name("zombie.toml"), image))

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    events = map(json.loads, (outcome.directory / "events.jsonl").read_text().splitlines())
    bites = {event["fault"]: event["bite"] for event in events if event["event"] == "injected"}
    assert bites["freeze_app"]["removed_members"] == 1


@pytest.mark.soak
def test_a_container_that_bypasses_the_proxies_is_refused(
    cluster: Cluster, tmp_path: Path, image: str
) -> None:
    direct = cluster.bootstrap(BrokerListener.DIRECT)
    outcome = run_text(cluster, tmp_path, BYPASS.format(image=image, direct=direct))

    assert outcome.exit_code is ExitCode.REFUSED, outcome.judgement
    # Without the rights to read the sockets of the container, the frames show the bypass.
    shown = "app-1 is connected to 127.0.0.1:" if os.geteuid() == 0 else "sent no frame through the tap"
    assert shown in (outcome.directory / "events.jsonl").read_text()


COPIER = Path(__file__).parents[2] / "examples" / "copier" / "copier.toml"
KILLED = """
[plan]
steady = "2s"
duration = "4s"

[[fault]]
fault = "kill_app"
target = "app(*)"
at = "1s"
lasts = "1s"
"""

BYPASS = """
[scenario]
name = "bypass"
shows = "a consumer in a container that uses the brokers past the proxies is refused"

[app]
image = "{image}"
command = ["java", "-cp", "{{jars:tools}}", "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "--bootstrap-server", "{direct}", "--topic", "{{topic:orders}}", "--group", "{{group}}"]
env = {{ UNUSED = "{{bootstrap}} {{topic:copies}}" }}
group = "readers"

[[input]]
topic = "orders"
value = "{{id}}"

[[output]]
topic = "copies"
each = 1
"""


def test_a_container_has_the_pinned_jars(make: Make) -> None:
    ensure_jars(print, "kafka", "tools")
    command = ["java", "-cp", "{jars:tools}", "org.apache.kafka.tools.TransactionalMessageCopier", "--help"]
    app = make(command=command, restart="never", ready=ReadyCheck(command=["true"]))
    ended = wait_until(app.instances[0].exit, 60, "the container to end")
    assert "--use-group-metadata" in app.instances[0].log(), ended
