"""What an authoriser refuses: a small broker of its own that checks rights, and a producer that has few."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from harness.cluster.cluster import Cluster
from harness.provision.kafka import ensure_kafka, free_ports
from harness.waits import wait_until
from harness.wire.admin import Admin, random_cluster_id
from harness.wire.protocol import answers
from tests.idempotent.conftest import Evidence

pytestmark = pytest.mark.cluster

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


class Guarded:
    """A broker where everybody on one door may do all, and alice on the other what she was given."""

    def __init__(self, open_port: int, checked_port: int) -> None:
        self.open = f"{HOST}:{open_port}"
        self.checked = f"{HOST}:{checked_port}"
        self.admin = Admin({1: (HOST, open_port)}, timeout=10)
        self._client = AdminClient({"bootstrap.servers": self.open, "log_level": 0})

    def allow(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        rule = AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        for future in self._client.create_acls([rule], request_timeout=10).values():
            future.result(10)

    def forbid(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Take a right away again; harmless if it was never given."""
        rule = AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        for future in self._client.delete_acls([rule], request_timeout=10).values():
            future.result(10)

    def alice(self, **settings: Any) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.checked, "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret",
                "enable.idempotence": True, "message.timeout.ms": 5000, "log_level": 0,
            } | settings
        )  # fmt: skip

    def written(self, topic: str) -> int:
        return self.admin.end_offsets(topic)[0].high_watermark


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("guarded")
    runtime = ensure_kafka(lambda _: None)
    runtime.format(folder / "data", random_cluster_id(), 1)
    doors = dict(zip(("open", "checked", "controller"), free_ports(3), strict=True))
    (folder / "server.properties").write_text(PROPERTIES.format(data=folder / "data", **doors))
    options = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    with (folder / "log").open("wb") as log:
        node = subprocess.Popen(
            runtime.command("kafka.Kafka", str(folder / "server.properties"), options=options),
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_until(
            lambda: answers(HOST, doors["open"]), 60, "the guarded broker", hint=f"see {folder / 'log'}"
        )
        made = Guarded(doors["open"], doors["checked"])
        for topic in ("none", "seen", "written", "enough"):
            make_topic(made, topic)
        yield made
    finally:
        node.send_signal(signal.SIGKILL)
        node.wait(20)


def make_topic(guarded: Guarded, name: str) -> None:
    guarded.admin.create_topic(name, [[1]])
    wait_until(lambda: guarded.admin.partition(name, 0).leader == 1, 20, f"topic {name}")


def outcome(producer: Producer, topic: str) -> str:
    """What becomes of one record: `delivered`, or the name of the error that the client library reports."""
    told: list[KafkaError | None] = []
    try:
        producer.produce(topic, b"record", partition=0, on_delivery=lambda error, _: told.append(error))
        producer.flush(10)
    except KafkaException as error:
        return str(error.args[0].name())
    except SystemError as error:  # confluent-kafka calls back although a fatal error's exception is set
        return str(error.__cause__.args[0].name())  # type: ignore[union-attr]
    finally:
        producer.close()
    return "delivered" if told[0] is None else str(told[0].name())


def test_rights_step_by_step(guarded: Guarded, evidence: Evidence) -> None:
    """The right to write a topic brings the producer id with it; to be idempotent alone writes nothing."""

    def attempt(topic: str) -> tuple[set[str], int]:
        errors: list[str] = []
        told = outcome(guarded.alice(error_cb=lambda error: errors.append(error.name())), topic)
        return {told, *errors}, guarded.written(topic)

    nothing = attempt("none")
    guarded.allow(ResourceType.TOPIC, "seen", AclOperation.DESCRIBE)
    seen = attempt("seen")
    guarded.allow(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
    with_id = attempt("seen")
    guarded.allow(ResourceType.TOPIC, "written", AclOperation.WRITE)
    with_write = attempt("written")
    evidence(nothing=nothing, seen=seen, with_id=with_id, with_write=with_write)
    assert "TOPIC_AUTHORIZATION_FAILED" in nothing[0]
    assert "CLUSTER_AUTHORIZATION_FAILED" in seen[0]
    assert "TOPIC_AUTHORIZATION_FAILED" in with_id[0]
    assert [nothing[1], seen[1], with_id[1]] == [0, 0, 0]
    assert with_write == ({"delivered"}, 1)


def test_write_alone_is_enough(guarded: Guarded, evidence: Evidence) -> None:
    """Without the right to be idempotent, which no producer needs since 2.8."""
    guarded.allow(ResourceType.TOPIC, "enough", AclOperation.WRITE)
    guarded.forbid(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
    told = outcome(guarded.alice(), "enough")
    evidence(told=told, written=guarded.written("enough"))
    assert told == "delivered"
    assert guarded.written("enough") == 1
