"""Nodes of an external cluster, controlled through the user's commands or through container labels."""

from __future__ import annotations

import shlex
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from harness.base.addresses import Address
from harness.base.errors import CapabilityError, HarnessError, describe_error
from harness.base.secrets import redact
from harness.base.waits import wait_until
from harness.cluster.compose_backend import ContainerNode
from harness.cluster.external.audit_log import Audit
from harness.cluster.external.cluster_file import NODE_LOGS, NodesPart
from harness.cluster.nodes import Condition, Node, NodeStatus, Role
from harness.provision.docker_engine import Engine

if TYPE_CHECKING:
    from docker.models.containers import Container

COMMAND_LIMIT_S: Final = 60.0
_CONNECT_S: Final = 2.0
_NO_EVIDENCE: Final = "the files of external nodes are not read"
NOT_READ: Final = f"not read: evidence.logs in the cluster file lacks {NODE_LOGS}\n"


class Asks(Protocol):
    """Type of a function that returns whether a broker answers a request within a time limit."""

    def __call__(self, broker: int, timeout: float = 1.0) -> bool: ...


class CommandNode:
    """A broker that the harness controls through the user's commands.

    The harness cannot see the broker's process. It determines the broker's condition over the network.
    """

    role: Role = "broker"

    def __init__(self, name: str, node_id: int, part: NodesPart, address: Address, answers: Asks) -> None:
        self.name = name
        self.node_id = node_id
        self._part = part
        self._address = address
        self._answers = answers

    def command(self, verb: str) -> list[str]:
        """Return the command for a verb, such as `kill`, as a list of arguments.

        The command is run without a shell.
        """
        template = getattr(self._part, verb)
        if not template:
            raise CapabilityError(f"no command to {verb} a node", f'add {verb} = "..." to [nodes]')
        host = self._part.hosts.get(str(self.node_id), self._address[0])
        return [word.format(host=host, id=self.node_id) for word in shlex.split(template)]

    def status(self) -> NodeStatus:
        """Return the condition of the broker, as observed over the network.

        It is RUNNING if the broker answers a request. It is PAUSED if the broker only accepts a connection.
        Otherwise it is EXITED.
        """
        if self._answers(self.node_id):
            return NodeStatus(Condition.RUNNING)
        try:
            socket.create_connection(self._address, timeout=_CONNECT_S).close()
        except OSError:
            return NodeStatus(Condition.EXITED)
        return NodeStatus(Condition.PAUSED)

    def start(self) -> None:
        """Run the user's start command if the broker's port is closed."""
        if self.status().condition is Condition.EXITED:
            self._run("start")

    def stop(self) -> None:
        """Run the user's stop command, and wait until the broker's port is closed."""
        self._run("stop", Condition.EXITED)

    def kill(self) -> None:
        """Run the user's kill command, and wait until the broker's port is closed."""
        self._run("kill", Condition.EXITED)

    def pause(self) -> None:
        """Run the user's pause command. Wait until the broker accepts connections but answers no request."""
        self._run("pause", Condition.PAUSED)

    def resume(self) -> None:
        """Run the user's resume command if the cluster file has one and the broker is frozen."""
        if self._part.resume and self.status().condition is Condition.PAUSED:
            self._run("resume")

    def _run(self, verb: str, then: Condition | None = None) -> str:
        command = self.command(verb)
        hint = "run the command by hand; it is in [nodes] of the cluster file"
        shown = shlex.join(command)
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=COMMAND_LIMIT_S,
                check=False,
                stdin=subprocess.DEVNULL,
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HarnessError(f"cannot run `{shown}`: {error}", hint) from error
        if done.returncode != 0:
            output = redact(f"{done.stdout}{done.stderr}".strip()[-300:])
            raise HarnessError(f"`{shown}` exited with {done.returncode}: {output}", hint)
        if then is not None:
            wait_until(lambda: self.status().condition is then, COMMAND_LIMIT_S, f"{self.name} to be {then}")
        return done.stdout

    def log(self, lines: int = 200) -> str:
        """Run the user's log command. Return the last lines of its output; `lines` is their number."""
        return "".join(self._run("log").splitlines(keepends=True)[-lines:])

    def segments(self, partition: str, scratch: Path) -> list[Path]:
        """Raise CapabilityError: the harness does not read the files of an external broker."""
        raise CapabilityError(_NO_EVIDENCE, f"{partition} is not copied to {scratch}")


class LabelledEngine(Engine):
    """A Docker engine in which the container of a node is found by a label that the user chose."""

    def __init__(self, template: str, host: str, node_id: int) -> None:
        super().__init__("")
        self.label = template.format(host=host, id=node_id)

    def container(self, service: str) -> Container:
        """Return the only container with the user's label, running or not.

        Raise HarnessError if there is no such container, or more than one.
        """
        found = self.client.containers.list(all=True, filters={"label": self.label})
        if len(found) != 1:
            raise HarnessError(
                f"{len(found)} containers of {service} have the label {self.label}; expected one",
                "docker_label must match one container per broker: use {id} or {host} in it",
            )
        return found[0]


def labelled_node(name: str, node_id: int, template: str, host: str) -> Node:
    """Return a node object for a broker that runs in a Docker container of the user.

    The container is found by its label. The label is the text `template` with {host} replaced by `host` and
    {id} replaced by `node_id`.
    """
    return ContainerNode(name, node_id, "broker", LabelledEngine(template, host, node_id))


class AuditedNode:
    """A node of an external cluster. It records each change in the audit log before it makes the change.

    The harness reads the log of the broker only if the cluster file permits it. `log_unread` is the reason
    why the broker's log was not read. It is empty after a successful read.
    """

    role: Role = "broker"

    def __init__(self, node: Node, audit: Audit, *, logs: bool = False) -> None:
        self._logs = logs
        self.log_unread = "it was not requested"
        self.name = node.name
        self.node_id = node.node_id
        self._node = node
        self._audit = audit

    def status(self) -> NodeStatus:
        return self._node.status()

    def start(self) -> None:
        self._noted("start")
        self._node.start()

    def stop(self) -> None:
        self._noted("stop")
        self._node.stop()

    def kill(self) -> None:
        self._noted("kill")
        self._node.kill()

    def pause(self) -> None:
        self._noted("pause")
        self._node.pause()

    def resume(self) -> None:
        self._noted("resume")
        self._node.resume()

    def log(self, lines: int = 200) -> str:
        """Return the last lines of the node's log if the cluster file permits reading it.

        Permission is needed because a broker's log also contains data of other users.
        """
        if not self._logs:
            return NOT_READ
        self._noted("log")
        try:
            found = self._node.log(lines)
        except Exception as error:  # noqa: BLE001  # a run does not need it, whatever its engine raises
            self.log_unread = describe_error(error)
            return f"not read: {self.log_unread}\n"
        self.log_unread = ""
        return found

    def segments(self, partition: str, scratch: Path) -> list[Path]:
        """Raise CapabilityError: the harness does not read the files of an external broker."""
        raise CapabilityError(_NO_EVIDENCE, f"{partition} is not copied to {scratch}")

    def _noted(self, verb: str) -> None:
        self._audit.note("node", node=self.name, verb=verb)
