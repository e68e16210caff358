"""The running application as faults and the bypass check see it: instances, group members, time limits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import Final

import psutil

from harness.app.supervisor import AppSupervisor
from harness.base.errors import HarnessError
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST, BrokerListener
from harness.kafka.group_members import group_members
from harness.kafka.hanging_transactions import producer_ids
from harness.provision.app_processes import visible_processes
from harness.run.app_frames import AppFrames, Observed

IPV4_IN_IPV6: Final = "::ffff:"
"""Prefix of an IPv4 address in a socket for IPv6, which Java uses."""
OPEN: Final = (psutil.CONN_ESTABLISHED, psutil.CONN_SYN_SENT)


class RunningApp:
    """The application of one run. `frames` is None if the run has no frame log.

    `supervisor` is None if the harness has not started the application. It then has no instances.
    """

    def __init__(
        self,
        cluster: Cluster,
        supervisor: AppSupervisor | None,
        frames: AppFrames | None,
        *,
        group: str,
        outputs: Sequence[str],
    ) -> None:
        self._outputs = outputs
        self._cluster = cluster
        self._processes = supervisor
        self._group = group
        self._frames = frames

    @property
    def running(self) -> list[str]:
        """Names of the instances that are wanted to run."""
        return self._processes.running if self._processes is not None else []

    @property
    def _supervisor(self) -> AppSupervisor:
        if self._processes is None:
            raise HarnessError(
                "the harness has not started the application", "remove faults on its processes"
            )
        return self._processes

    @property
    def instances(self) -> int:
        """Number of instances that the scenario asks for."""
        return self._supervisor.spec.instances

    def restart(self, name: str) -> str:
        """Stop an instance cleanly and start it again; return what was wrong with the stop, or ""."""
        number = self.start_number(name)
        problem = self._supervisor.restart(name)
        self._supervisor.wait_started(name, number + 1)
        return problem

    def scale(self, count: int) -> None:
        """Start or stop instances until this number runs."""
        self._supervisor.scale(count)

    def wait_ready(self, limit: float) -> None:
        """Wait until all instances are ready."""
        self._supervisor.wait_ready(limit=limit)

    def start_number(self, name: str) -> int:
        """Return how often an instance was started."""
        return self._supervisor.instance(name).number

    def wipe_state(self, name: str) -> int:
        """Empty the state directory of an instance, and return the number of files that it had."""
        folder = self._supervisor.instance(name).state_folder
        files = sum(path.is_file() for path in folder.rglob("*"))
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return files

    def members(self) -> dict[str, str]:
        """Return the members of the group: the client id by member id. It is empty without a group."""
        if not self._group:
            return {}
        bootstrap = self._cluster.bootstrap(BrokerListener.DIRECT)
        return group_members(bootstrap, self._group, self._cluster.security)

    def members_of(self, name: str) -> dict[str, str]:
        """Return those members of the group that belong to an instance.

        Frames on the connections of its processes name them. If none does, because the group uses the newer
        protocol or the processes cannot be read, the client ids on these connections decide.
        """
        observed, members = self._observed(), self.members()
        assert self._frames is not None
        connections = self._frames.connections_from(self._local_ports(name))
        named = {member for connection in connections for member in connection.members}
        if found := {member: client for member, client in members.items() if member in named}:
            return found
        clients = {client for connection in connections for client in connection.client_ids}
        if not connections and name in observed.client_ids:
            clients = {name}
        return {member: client for member, client in members.items() if client in clients}

    def transactional_ids_of(self, name: str) -> set[str]:
        """Return the transactional ids that an instance has sent."""
        self._observed()
        assert self._frames is not None
        connections = self._frames.connections_from(self._local_ports(name))
        return {ident for connection in connections for ident in connection.transactional_ids}

    def session_timeout_ms(self) -> int:
        """Return the longest session time-out that the group's members have sent; 0 if none was seen."""
        return max(self._observed().session_timeouts.values(), default=0)

    def transaction_timeout_ms(self, transactional_id: str) -> int:
        """Return the transaction time-out that was sent for a transactional id; 0 if none was seen."""
        return self._observed().transaction_timeouts.get(transactional_id, 0)

    def request_timeout_ms(self) -> int:
        """Return the longest request time-out that producers have sent; 0 if none was seen."""
        return self._observed().request_timeout_ms

    def aborts_sent(self, transactional_id: str) -> int:
        """Return how often the application has asked to abort a transaction of this id."""
        return self._observed().aborts_sent.get(transactional_id, 0)

    def learned(self) -> list[str]:
        """Describe the time limits of the application. The list is empty if the run has no frame log."""
        if self._frames is None:
            return []
        observed = self._observed()
        lines = []
        if session := self.session_timeout_ms():
            rebalance = max(observed.rebalance_timeouts.values(), default=0)
            lines.append(f"session time-out {session / 1000:g} s, rebalance time-out {rebalance / 1000:g} s")
        if observed.transaction_timeouts:
            longest = observed.longest_transaction_ms / 1000
            timeout = max(observed.transaction_timeouts.values()) / 1000
            lines.append(f"transaction time-out {timeout:g} s, longest transaction so far {longest:.2f} s")
        if observed.end_versions:
            lines.append(f"EndTxn version {', '.join(map(str, sorted(observed.end_versions)))}")
        return lines

    def bypass(self) -> str:
        """Describe a connection of the application to a broker that no proxy sees; empty if there is none."""
        for name in self.running:
            for local, (host, port) in self._connections(name):
                if self._is_behind_proxies(host, port):
                    return f"{name} is connected to {host}:{port} (from port {local})"
        if self._frames is None:
            return ""
        try:
            return self.unseen_member() or self._unseen_producer()
        except (HarnessError, OSError, EOFError):
            return ""  # a broker does not answer now; the next check asks again

    def unseen_member(self) -> str:
        """Describe a member of the group whose client id no frame contains; empty if there is none."""
        for member, client in self.members().items():
            if client not in self._observed().client_ids:
                what = f"member {member} of the group, with client id {client!r},"
                return f"{what} sent no frame through the tap"
        return ""

    def _unseen_producer(self) -> str:
        """Describe a producer of the outputs whose producer id no frame contains."""
        # First the ids, then the frames: each id was assigned earlier, by an answer in a frame.
        found = producer_ids(self._cluster.admin, self._outputs)
        observed = self._observed()
        if observed.undecoded & {"InitProducerId", "EndTxn"}:
            return ""  # an id may be in a frame that could not be decoded
        strange = sorted(found - observed.producer_ids)
        outputs = ", ".join(self._outputs)
        return f"producer id {strange[0]} in {outputs} was assigned past the tap" if strange else ""

    def _observed(self) -> Observed:
        return self._frames.read() if self._frames is not None else Observed()

    def _is_behind_proxies(self, host: str, port: int) -> bool:
        ports = self._cluster.ports
        if host.startswith(f"{ports.subnet}."):
            return True
        listeners = (ports.proxied, ports.tapped)
        proxied = [port_of(b) for b in self._cluster.broker_ids for port_of in listeners]
        return host == HOST and port in ports.all and port not in proxied

    def _local_ports(self, name: str) -> list[int]:
        return [local for local, _ in self._connections(name)]

    def _connections(self, name: str) -> Iterator[tuple[int, tuple[str, int]]]:
        """Yield local port and remote address of the open connections of an instance."""
        for process in visible_processes(self._supervisor.instance(name).mark):
            try:
                found = process.net_connections(kind="tcp")
            except (psutil.Error, OSError):
                continue  # the process has ended, or another user started it
            for connection in found:
                if connection.raddr and connection.status in OPEN:
                    host = connection.raddr.ip.removeprefix(IPV4_IN_IPV6)
                    yield connection.laddr.port, (host, connection.raddr.port)
