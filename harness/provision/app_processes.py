"""The processes of one start of an application under test: a process tree on this host, or a container.

A start is identified by its mark, which is the path of its folder and ends with a slash. A start whose folder
contains the file `container` runs in the container with the name in this file. Every other start is a process
tree that is found by its environment (base/process_trees.py). The path of a parent folder is the mark of all
starts below it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

import psutil

from harness.base import process_trees
from harness.base.errors import HarnessError
from harness.base.process_trees import IN_CONTAINER, TREE
from harness.base.processes import ProcessState

CONTAINER: Final = "container"
"""File with the name of the container of a start. It is written before the container is created."""
_LIMIT_S: Final = 30.0
_STATES: Final = {"created": ProcessState.RUNNING, "running": ProcessState.RUNNING} | {
    "restarting": ProcessState.RUNNING,
    "paused": ProcessState.STOPPED,
}
_VERBS: Final = {signal.SIGSTOP: ["pause"], signal.SIGCONT: ["unpause"]}


def app_container(mark: str) -> str:
    """Return the name of the container of one start; empty if the start is a process tree."""
    try:
        return (Path(mark) / CONTAINER).read_text()
    except FileNotFoundError:
        return ""


def visible_processes(mark: str) -> list[psutil.Process]:
    """Return the processes of one start; of those in a container, the ones that this user may read."""
    return process_trees.find_tree(mark, IN_CONTAINER if app_container(mark) else TREE)


def count_processes(mark: str) -> int:
    """Return the number of processes of the starts with this mark. A container counts as one."""
    containers = [name for name in _containers(mark) if _state(name) is not ProcessState.GONE]
    return len(containers) or len(process_trees.find_tree(mark))


def describe_processes(mark: str) -> list[str]:
    """Describe the processes and containers that the starts with this mark have left."""
    return [f"process {process.pid}" for process in process_trees.find_tree(mark)] + [
        f"container {name}" for name in _containers(mark) if _state(name) is not ProcessState.GONE
    ]


def send_signal(mark: str, what: signal.Signals) -> None:
    """Send a signal to all processes of a start. SIGSTOP pauses a container, and SIGCONT resumes it."""
    if name := app_container(mark):
        _docker(*_VERBS.get(what, ["kill", "--signal", what.name]), name, check=False)
    else:
        process_trees.send_to_tree(mark, what)


def processes_state(mark: str) -> ProcessState:
    """Return whether the processes of one start run, are all suspended, or are gone."""
    name = app_container(mark)
    return _state(name) if name else process_trees.tree_state(mark)


def end_processes(mark: str) -> int:
    """End all processes and containers of the starts with this mark. Return how many processes were found."""
    ended = process_trees.end_tree(mark)
    for name in _containers(mark):
        if _state(name) is not ProcessState.GONE:
            ended += 1
        # A container that has ended still exists until it is removed.
        _docker("rm", "--force", "--volumes", name, check=False)
    return ended


def was_out_of_memory(name: str) -> bool:
    """Return whether the kernel ended a container that has stopped because of its memory limit."""
    return _docker("inspect", "--format", "{{.State.OOMKilled}}", name, check=False).strip() == "true"


def image_digest(image: str) -> str:
    """Return the digest of a local image, `sha256:...`; empty if there is none."""
    digests = "{{if .RepoDigests}}{{index .RepoDigests 0}}{{else}}{{.Id}}{{end}}"
    found = _docker("image", "inspect", "--format", digests, image, check=False).strip()
    return found.rpartition("@")[2]  # the digest in a repository follows the name of the repository


def service_image(file: Path, project: str, service: str) -> str:
    """Return the name of the image of a service in a compose file; empty if the file has no such service.

    Compose names an image that it builds itself after the project and the service.
    """
    command = ["compose", "--file", str(file), "--project-name", project, "config", "--format", "json"]
    found = json.loads(_docker(*command, service, check=False) or "{}").get("services", {}).get(service)
    return "" if found is None else str(found.get("image", f"{project}-{service}"))


def docker_program() -> str:
    """Return the path of the Docker client; raise HarnessError if there is none."""
    program = shutil.which("docker")
    if program is None:
        raise HarnessError("there is no docker command on PATH", "install Docker, or use [app] command")
    return program


def _containers(mark: str) -> list[str]:
    folder = Path(mark)
    files = [folder / CONTAINER] if (folder / CONTAINER).exists() else folder.glob(f"**/starts/*/{CONTAINER}")
    return sorted(file.read_text() for file in files)


def _state(name: str) -> ProcessState:
    status = _docker("inspect", "--format", "{{.State.Status}}", name, check=False).strip()
    return _STATES.get(status, ProcessState.GONE)


def _docker(*arguments: str, check: bool = True) -> str:
    """Run the Docker client and return its output. Without `check`, an error gives an empty output."""
    done = subprocess.run(
        [docker_program(), *arguments],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
        env=dict(os.environ),
    )
    if done.returncode and check:
        raise HarnessError(
            f"docker {arguments[0]} failed: {done.stderr.strip()}", "does the Docker engine run?"
        )
    return done.stdout if done.returncode == 0 else ""
