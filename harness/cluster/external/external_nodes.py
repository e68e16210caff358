"""Nodes of somebody else's: reached by the user's own commands, or by the label of their containers."""

from __future__ import annotations

import shlex
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from harness.base.errors import CapabilityError, HarnessError, describe_error
from harness.base.secrets import redact
from harness.base.waits import wait_until
from harness.cluster.compose_backend import ContainerNode
from harness.cluster.external.audit_log import Audit
from harness.cluster.external.cluster_file import NODE_LOGS, NodesPart
from harness.cluster.nodes import Condition, Node, NodeStatus, Role
from harness.kafka.admin import Address
from harness.provision.docker_engine import Engine

if TYPE_CHECKING:
    from docker.models.containers import Container

COMMAND_LIMIT_S: Final = 60.0
_CONNECT_S: Final = 2.0
_NO_EVIDENCE: Final = "of nodes that are not ours only metadata is read"
NOT_READ: Final = f"not read: evidence.logs of the cluster's file has no {NODE_LOGS}\n"


class Asks(Protocol):
    """Whether a broker answers."""

    def __call__(self, broker: int, timeout: float = 1.0) -> bool:
        """Ask it."""
        ...


class CommandNode:
    """A broker that the user's commands reach; how it is doing is seen over the network alone."""

    role: Role = "broker"

    def __init__(self, name: str, node_id: int, part: NodesPart, address: Address, answers: Asks) -> None:
        self.name = name
        self.node_id = node_id
        self._part = part
        self._address = address
        self._answers = answers

    def command(self, verb: str) -> list[str]:
        """The command that does it, as it will be run: without a shell."""
        template = getattr(self._part, verb)
        if not template:
            raise CapabilityError(f"nothing says how to {verb} a node", f'add {verb} = "..." to [nodes]')
        host = self._part.hosts.get(str(self.node_id), self._address[0])
        return [word.format(host=host, id=self.node_id) for word in shlex.split(template)]

    def status(self) -> NodeStatus:
        """Running if it answers, frozen if it takes a connection and does not, else gone."""
        if self._answers(self.node_id):
            return NodeStatus(Condition.RUNNING)
        try:
            socket.create_connection(self._address, timeout=_CONNECT_S).close()
        except OSError:
            return NodeStatus(Condition.EXITED)
        return NodeStatus(Condition.PAUSED)

    def start(self) -> None:
        """Run the command for it, unless it answers."""
        if self.status().condition is Condition.EXITED:
            self._run("start")

    def stop(self) -> None:
        """Run the command, and wait until it takes no connection."""
        self._run("stop", Condition.EXITED)

    def kill(self) -> None:
        """Run the command, and wait until it takes no connection."""
        self._run("kill", Condition.EXITED)

    def pause(self) -> None:
        """Run the command, and wait until it answers no more."""
        self._run("pause", Condition.PAUSED)

    def resume(self) -> None:
        """Run the command, if it is frozen and there is one: what was only killed is not resumed."""
        if self._part.resume and self.status().condition is Condition.PAUSED:
            self._run("resume")

    def _run(self, verb: str, then: Condition | None = None) -> str:
        command = self.command(verb)
        hint = "run it by hand; [nodes] of the cluster's file says what is run"
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
            raise HarnessError(f"`{shown}` could not be run: {error}", hint) from error
        if done.returncode != 0:
            said = redact(f"{done.stdout}{done.stderr}".strip()[-300:])
            raise HarnessError(f"`{shown}` ended with {done.returncode}: {said}", hint)
        if then is not None:
            wait_until(lambda: self.status().condition is then, COMMAND_LIMIT_S, f"{self.name} to be {then}")
        return done.stdout

    def log(self, lines: int = 200) -> str:
        """The last lines that the command for it prints."""
        return "".join(self._run("log").splitlines(keepends=True)[-lines:])

    def segments(self, partition: str, scratch: Path) -> list[Path]:
        """Refused."""
        raise CapabilityError(_NO_EVIDENCE, f"{partition} is not copied to {scratch}")


class LabelledEngine(Engine):
    """Finds the container of a node by a label of the user's."""

    def __init__(self, template: str, host: str, node_id: int) -> None:
        super().__init__("")
        self.label = template.format(host=host, id=node_id)

    def container(self, service: str) -> Container:
        """The one container with the label, running or not."""
        found = self.client.containers.list(all=True, filters={"label": self.label})
        if len(found) != 1:
            raise HarnessError(
                f"{len(found)} containers of {service} have the label {self.label}, not one",
                "docker_label must name one container a broker: use {id} or {host} in it",
            )
        return found[0]


def labelled_node(name: str, node_id: int, template: str, host: str) -> Node:
    """The container that carries the label of this node."""
    return ContainerNode(name, node_id, "broker", LabelledEngine(template, host, node_id))


class AuditedNode:
    """A node whose every change stands in the audit log first, and whose log is read with consent alone.

    `log_unread` says why its log was not read the last time; it is empty once it was.
    """

    role: Role = "broker"

    def __init__(self, node: Node, audit: Audit, *, logs: bool = False) -> None:
        self._logs = logs
        self.log_unread = "nobody asked for it"
        self.name = node.name
        self.node_id = node.node_id
        self._node = node
        self._audit = audit

    def status(self) -> NodeStatus:
        """What the node says."""
        return self._node.status()

    def start(self) -> None:
        """Start it."""
        self._noted("start")
        self._node.start()

    def stop(self) -> None:
        """Stop it."""
        self._noted("stop")
        self._node.stop()

    def kill(self) -> None:
        """Kill it."""
        self._noted("kill")
        self._node.kill()

    def pause(self) -> None:
        """Freeze it."""
        self._noted("pause")
        self._node.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._noted("resume")
        self._node.resume()

    def log(self, lines: int = 200) -> str:
        """The log of a broker tells of others too: nothing of it without consent."""
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
        """Refused."""
        raise CapabilityError(_NO_EVIDENCE, f"{partition} is not copied to {scratch}")

    def _noted(self, verb: str) -> None:
        self._audit.note("node", node=self.name, verb=verb)
