"""Somebody else's cluster: three brokers with TLS, passwords and rights, topics and groups of other people.

Two doors are secured: one that leads straight to the brokers, and one that is advertised where a Toxiproxy
has to listen. The tests look at it through a third, open door, which no file of a live cluster names.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from harness.provision.kafka import ensure_kafka
from harness.waits import wait_until
from harness.wire import processes
from harness.wire.admin import Admin, random_cluster_id
from harness.wire.ports import free_ports
from harness.wire.protocol import answers

HOST = "127.0.0.1"
USER, PASSWORD = "chaos", 'pass"word-5eCr3t\\x'
"""With what quoting has to survive."""
STORE_PASSWORD = "store-password"
PREFIX = "eos-chaos-"
FOREIGN = {"payments": 3, "shipments": 2}
ALIAS = "standin"
DOORS = ("open", "straight", "proxied", "listen", "controller")
PROPERTIES = """process.roles={roles}
node.id={id}
controller.quorum.voters=1@127.0.0.1:{voter}
listeners=OPEN://127.0.0.1:{open},STRAIGHT://127.0.0.1:{straight},PROXIED://127.0.0.1:{proxied}{more}
advertised.listeners=OPEN://127.0.0.1:{open},STRAIGHT://127.0.0.1:{straight},PROXIED://127.0.0.1:{listen}
listener.security.protocol.map=OPEN:PLAINTEXT,STRAIGHT:SASL_SSL,PROXIED:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=OPEN
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN
listener.name.straight.plain.sasl.jaas.config={jaas}
listener.name.proxied.plain.sasl.jaas.config={jaas}
ssl.keystore.type=PKCS12
ssl.keystore.location={store}
ssl.keystore.password={store_password}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
default.replication.factor=3
offsets.topic.replication.factor=3
offsets.topic.num.partitions=6
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=6
min.insync.replicas=2
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=5000
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
auto.leader.rebalance.enable=false
num.io.threads=4
num.network.threads=2
background.threads=2
log.cleaner.dedupe.buffer.size=2097152
log.dirs={data}
"""


class StandIn:
    """The cluster, its open door, and what stands on it that is not ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster_id = random_cluster_id()
        ports = free_ports(3 * len(DOORS))
        self.ports = {
            i: dict(zip(DOORS, ports[(i - 1) * len(DOORS) : i * len(DOORS)], strict=True)) for i in (1, 2, 3)
        }
        self.admin = Admin({i: (HOST, p["open"]) for i, p in self.ports.items()}, timeout=10)
        self.servers = self.bootstrap("open")
        self.ca = folder / "ca.pem"

    def bootstrap(self, door: str) -> str:
        return ",".join(f"{HOST}:{ports[door]}" for ports in self.ports.values())

    @cached_property
    def client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    # Nodes: started and killed by scripts, as an operator would

    def node(self, number: int) -> Path:
        return self.folder / f"node-{number}"

    def start(self, number: int) -> None:
        subprocess.run(["sh", self.node(number) / "start.sh"], check=True, timeout=30)

    def kill(self, number: int) -> None:
        subprocess.run(["sh", self.node(number) / "kill.sh"], check=True, timeout=30)

    def serves(self, number: int) -> bool:
        return answers(HOST, self.ports[number]["open"])

    def whole(self) -> bool:
        """Whether every broker is there and every partition has all its replicas."""
        view = self.admin.metadata(None)
        return len(view.brokers) == 3 and all(set(p.isr) == set(p.replicas) for p in view.partitions)

    def mend(self) -> None:
        """Start what does not run, and wait until everything is whole."""
        for number in self.ports:
            if not self.serves(number):
                self.start(number)
        wait_until(self.whole, 120, "the stand-in to be whole")

    def prepare(self) -> None:
        """Write the configuration of every node, and the scripts that start and kill it."""
        runtime = ensure_kafka(lambda _: None)
        self._certificate()
        jaas_password = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        jaas = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{jaas_password}";'
        ).replace("\\", "\\\\")
        for number, ports in self.ports.items():
            folder = self.node(number)
            runtime.format(folder / "data", self.cluster_id, number)
            leads = number == 1
            (folder / "server.properties").write_text(PROPERTIES.format(
                id=number, roles="broker,controller" if leads else "broker",
                more=f",CONTROLLER://127.0.0.1:{ports['controller']}" if leads else "",
                voter=self.ports[1]["controller"], jaas=jaas, store=self.folder / "store.p12",
                store_password=STORE_PASSWORD, data=folder / "data", **ports,
            ))  # fmt: skip
            options = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            command = runtime.command("kafka.Kafka", str(folder / "server.properties"), options=options)
            (folder / "start.sh").write_text(
                f"cd {shlex.quote(str(folder))}\n"
                f"{processes.SUPERVISED}=1 setsid {shlex.join(command)} >>log 2>&1 </dev/null &\n"
                "echo $! >pid\n"
            )
            (folder / "kill.sh").write_text(f"kill -9 $(cat {shlex.quote(str(folder / 'pid'))})\n")

    def _certificate(self) -> None:
        """A certificate that signs itself, for the loopback address."""
        java = ensure_kafka(lambda _: None).java
        keytool = java.resolve().with_name("keytool")
        store = ["-keystore", self.folder / "store.p12", "-storepass", STORE_PASSWORD, "-alias", ALIAS]
        subprocess.run(
            [keytool, "-genkeypair", "-keyalg", "EC", "-dname", "CN=stand-in", "-validity", "30", *store,
             "-storetype", "PKCS12", "-ext", f"SAN=ip:{HOST},dns:localhost", "-ext", "bc:c"],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        subprocess.run(
            [keytool, "-exportcert", "-rfc", *store, "-file", self.ca],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip

    # What is not ours

    def settle(self) -> None:
        """Topics, records, a group's positions and a transactional id of other people."""
        for name, partitions in FOREIGN.items():
            ring = [1, 2, 3, 1, 2]
            self.admin.create_topic(
                name, [ring[i : i + 3] for i in range(partitions)], {"retention.ms": "7654321"}
            )
        wait_until(lambda: len(self.admin.metadata(list(FOREIGN)).partitions) == 5, 30, "the foreign topics")
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": "till-7"})
        wait_until(lambda: self.admin.coordinator("transaction", "till-7") > 0, 60, "transactions")
        producer.init_transactions(60)
        producer.begin_transaction()
        for i in range(30):
            producer.produce("payments", f"payment {i}".encode(), partition=i % 3)
        producer.commit_transaction(60)
        wait_until(lambda: self.admin.coordinator("group", "bookkeeping") > 0, 60, "groups")
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "bookkeeping",
                             "auto.offset.reset": "earliest"})  # fmt: skip
        consumer.subscribe(["payments"])
        wait_until(lambda: consumer.poll(1.0), 60, "the payments")
        consumer.commit(asynchronous=False)
        consumer.close()
        wait_until(self.whole, 120, "the stand-in to be whole")

    def grant(self, commands: list[str]) -> None:
        """Give the rights that lines for kafka-acls.sh ask for."""
        rules = [rule for command in commands for rule in _rules(command)]
        for future in self.client.create_acls(rules, request_timeout=10).values():
            future.result(10)

    def foreign(self) -> dict[str, Any]:
        """Everything on it that is not ours: topics, ends, settings, groups and positions, rights, ids."""
        client = self.client
        view = self.admin.metadata(None).partitions
        topics = sorted({p.topic for p in view if not p.topic.startswith(PREFIX)})
        kinds = [(ConfigResource.Type.TOPIC, name) for name in topics]
        kinds += [(ConfigResource.Type.BROKER, str(i)) for i in self.ports]
        # One call each: no more than one broker may be asked for in one.
        asked = [client.describe_configs([ConfigResource(*one)], request_timeout=10) for one in kinds]
        groups = client.list_consumer_groups(request_timeout=10).result(10).valid
        from harness.wire.observer import group_positions
        from harness.wire.roles import coordinated_transactions

        names = sorted(g.group_id for g in groups if not g.group_id.startswith(PREFIX))
        ids = {t for i in self.ports for t in coordinated_transactions(self.admin, i)}
        return {
            "partitions": [(p.topic, p.partition, sorted(p.replicas)) for p in view if p.topic in topics],
            "ends": {name: self.admin.end_offsets(name) for name in FOREIGN},
            "configs": {
                f"{r.restype} {r.name}": {k: v.value for k, v in f.result(10).items()}
                for one in asked
                for r, f in one.items()
            },
            "positions": {name: group_positions(self.servers, name) for name in names},
            "ids": sorted(t for t in ids if not t.startswith(PREFIX)),
        }

    def ours(self) -> list[str]:
        """Topics that carry the prefix."""
        return sorted({p.topic for p in self.admin.metadata(None).partitions if p.topic.startswith(PREFIX)})

    def lacking(self) -> int:
        """How many partitions of others lack a replica now."""
        view = self.admin.metadata(None).partitions
        return sum(set(p.isr) != set(p.replicas) for p in view if not p.topic.startswith(PREFIX))


def _rules(command: str) -> Iterator[AclBinding]:
    words = shlex.split(command)
    who = words[words.index("--allow-principal") + 1]
    pattern = ResourcePatternType.PREFIXED if "prefixed" in words else ResourcePatternType.LITERAL
    kinds = {"--topic": ResourceType.TOPIC, "--group": ResourceType.GROUP,
             "--transactional-id": ResourceType.TRANSACTIONAL_ID}  # fmt: skip
    kind, name = next((kinds[word], words[i + 1]) for i, word in enumerate(words) if word in kinds)
    for i, word in enumerate(words):
        if word == "--operation":
            operation = AclOperation[words[i + 1].upper()]
            yield AclBinding(kind, name, pattern, who, "*", operation, AclPermissionType.ALLOW)


@contextmanager
def stand_in(folder: Path) -> Iterator[StandIn]:
    """Start it, and end it with everything in its folder."""
    cluster = StandIn(folder)
    cluster.prepare()
    try:
        for number in cluster.ports:
            cluster.start(number)
        for number in cluster.ports:
            hint = f"see {cluster.node(number) / 'log'}"
            wait_until(lambda n=number: cluster.serves(n), 60, f"node {number} of the stand-in", hint=hint)
        wait_until(lambda: len(cluster.admin.metadata(()).brokers) == 3, 30, "three brokers")
        cluster.settle()
        yield cluster
    finally:
        processes.end_all(str(folder))
