"""A single broker for tests that need ACLs or short expiration times, which the cluster does not have."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from harness.base.ports import free_ports
from harness.base.waits import wait_until
from harness.kafka.admin import Admin, random_cluster_id
from harness.kafka.connection import answers
from harness.provision.kafka_runtime import ensure_kafka

HOST = "127.0.0.1"
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=OPEN://127.0.0.1:{open},CHECKED://127.0.0.1:{checked},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=OPEN://127.0.0.1:{open},CHECKED://127.0.0.1:{checked}
listener.security.protocol.map=OPEN:PLAINTEXT,CHECKED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=OPEN
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN
listener.name.checked.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
offsets.topic.replication.factor=1
log.dirs={data}
"""


class OneBroker:
    """A broker with an open listener, and one where the user alice has only the rights that a test grants."""

    def __init__(self, open_port: int, checked_port: int) -> None:
        self.address = (HOST, open_port)
        self.open = f"{HOST}:{open_port}"
        self.checked = f"{HOST}:{checked_port}"
        self.admin = Admin({1: self.address}, timeout=10)
        self._client = AdminClient({"bootstrap.servers": self.open, "log_level": 0})

    def topic(self, name: str) -> str:
        self.admin.create_topic(name, [[1]])
        wait_until(lambda: self.admin.partition(name, 0).leader == 1, 20, f"topic {name}")
        return name

    def allow(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Grant alice a right."""
        rule = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        for future in self._client.create_acls([rule], request_timeout=10).values():
            future.result(10)
        wait_until(lambda: self._rules(kind, name, operation), 10, f"{rule} to be in force")

    def forbid(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Revoke a right; harmless if it was never granted."""
        rule = _filter(kind, name, operation)
        for future in self._client.delete_acls([rule], request_timeout=10).values():
            future.result(10)
        wait_until(lambda: not self._rules(kind, name, operation), 10, f"{rule} to be revoked")

    def _rules(self, kind: ResourceType, name: str, operation: AclOperation) -> list[AclBinding]:
        """Return the access rules that the broker has for this right.

        A change reaches the broker only after the controller has acknowledged it.
        """
        asked = self._client.describe_acls(_filter(kind, name, operation), request_timeout=10)
        return list(asked.result(10))

    @property
    def as_alice(self) -> dict[str, Any]:
        """The settings of a client that connects as alice."""
        return {
            "bootstrap.servers": self.checked,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "message.timeout.ms": 5000,
            "log_level": 0,
        }

    def written(self, topic: str) -> int:
        """Return the high watermark of a topic's first partition."""
        return self.admin.end_offsets(topic)[0].high_watermark


def _filter(kind: ResourceType, name: str, operation: AclOperation) -> AclBindingFilter:
    return AclBindingFilter(
        kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
    )


@contextmanager
def one_broker(folder: Path, **settings: str) -> Iterator[OneBroker]:
    """Start a broker with these settings, and kill it at the end."""
    runtime = ensure_kafka(lambda _: None)
    runtime.format(folder / "data", random_cluster_id(), 1)
    ports = dict(zip(("open", "checked", "controller"), free_ports(3), strict=True))
    extra = "".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items())
    (folder / "server.properties").write_text(PROPERTIES.format(data=folder / "data", **ports) + extra)
    options = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    with (folder / "log").open("wb") as log:
        node = subprocess.Popen(
            runtime.command("kafka.Kafka", str(folder / "server.properties"), options=options),
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(
            lambda: answers(HOST, ports["open"]), 60, "the single broker", hint=f"see {folder / 'log'}"
        )
        yield OneBroker(ports["open"], ports["checked"])
    finally:
        node.send_signal(signal.SIGKILL)
        node.wait(20)
