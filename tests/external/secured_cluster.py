"""Stand-in for an external cluster: three brokers with TLS, passwords, ACLs, and foreign topics and groups.

Each broker has four secured listeners: two with a password (PLAIN or SCRAM, over TLS), two with a
certificate. In each pair, one listener leads directly to the broker. The other is advertised at the address
where Toxiproxy listens. The tests observe the cluster through a further listener without security, which no
cluster file names.
"""

from __future__ import annotations

import os
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
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from harness.base import processes
from harness.base.ports import free_ports
from harness.base.waits import wait_until
from harness.kafka.admin import Admin, random_cluster_id
from harness.kafka.connection import answers
from harness.provision.kafka_runtime import ensure_kafka
from tests.external.token_endpoint import TokenEndpoint

HOST = "127.0.0.1"
USER, PASSWORD = "chaos", 'pass"word-5eCr3t\\x'
"""Login of the user; the password has characters that need quoting."""
KEY_PASSWORD = "key-pa55word"
PREFIX = "eos-chaos-"
FOREIGN = {"payments": 3, "shipments": 2}
SUBJECT = "CN=chaos,O=Stand-in"
"""Subject of the client's certificate. It is also the name of the client's principal."""
LISTENERS = (
    "open",
    "controller",
    "straight",
    "proxied",
    "listen",
    "mutual_straight",
    "mutual_proxied",
    "mutual_listen",
)
VERBS = {
    "kill": "kill -9 $(cat pid)",
    "stop": "kill $(cat pid)",
    "pause": "kill -STOP $(cat pid)",
    "resume": "kill -CONT $(cat pid)",
}
"""Names of the operator's scripts, each with the shell command that the script runs on a node."""
PROPERTIES = """process.roles={roles}
node.id={id}
controller.quorum.voters=1@127.0.0.1:{voter}
listeners=OPEN://127.0.0.1:{open},STRAIGHT://127.0.0.1:{straight},PROXIED://127.0.0.1:{proxied},\
  MUTUAL://127.0.0.1:{mutual_straight},THROUGH://127.0.0.1:{mutual_proxied}{more}
advertised.listeners=OPEN://127.0.0.1:{open},STRAIGHT://127.0.0.1:{straight},PROXIED://127.0.0.1:{listen},\
  MUTUAL://127.0.0.1:{mutual_straight},THROUGH://127.0.0.1:{mutual_listen}
listener.security.protocol.map=OPEN:PLAINTEXT,STRAIGHT:SASL_SSL,PROXIED:SASL_SSL,MUTUAL:SSL,THROUGH:SSL,\
  CONTROLLER:PLAINTEXT
inter.broker.listener.name=OPEN
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.straight.plain.sasl.jaas.config={jaas}
listener.name.proxied.plain.sasl.jaas.config={jaas}
listener.name.straight.scram-sha-512.sasl.jaas.config={scram}
listener.name.proxied.scram-sha-512.sasl.jaas.config={scram}
listener.name.straight.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
listener.name.straight.oauthbearer.sasl.jaas.config={token}
listener.name.straight.oauthbearer.sasl.server.callback.handler.class={validator}
sasl.oauthbearer.jwks.endpoint.url=file://{keys}/jwks.json
sasl.oauthbearer.expected.audience=kafka
listener.name.mutual.ssl.client.auth=required
listener.name.through.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={keys}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={keys}/chaos.pem
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


def _ports_of_this_worker() -> range:
    """Return a range of ports from which no other server chooses.

    Between two tests, nothing listens on the ports of the proxies, so another server could take them.
    """
    first = 9_000 + 200 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 5)
    return range(first, first + 200)


class StandIn:
    """The stand-in cluster: its nodes, an open listener for the tests, and foreign resources."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster_id = random_cluster_id()
        size = len(LISTENERS)
        ports = free_ports(3 * size, among=_ports_of_this_worker())
        self.ports = {
            i: dict(zip(LISTENERS, ports[(i - 1) * size : i * size], strict=True)) for i in (1, 2, 3)
        }
        self.admin = Admin({i: (HOST, p["open"]) for i, p in self.ports.items()}, timeout=10)
        self.servers = self.bootstrap("open")
        self.keys = folder / "keys"
        self.ca = self.keys / "ca.pem"

    def bootstrap(self, listener: str) -> str:
        return ",".join(f"{HOST}:{ports[listener]}" for ports in self.ports.values())

    @cached_property
    def client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    # Nodes: scripts start, kill, stop and freeze them, as an operator would.

    def node(self, number: int) -> Path:
        return self.folder / f"node-{number}"

    def start(self, number: int) -> None:
        subprocess.run(["sh", self.node(number) / "start.sh"], check=True, timeout=30)

    def kill(self, number: int) -> None:
        subprocess.run(["sh", self.node(number) / "kill.sh"], check=True, timeout=30)

    def serves(self, number: int) -> bool:
        return answers(HOST, self.ports[number]["open"])

    def whole(self) -> bool:
        """Return whether every broker is up and every partition has all its replicas in sync."""
        view = self.admin.metadata(None)
        return len(view.brokers) == 3 and all(set(p.isr) == set(p.replicas) for p in view.partitions)

    def mend(self) -> None:
        """Start or resume all nodes, and wait until all replicas are in sync."""
        for number in self.ports:
            if not self.serves(number):
                subprocess.run(["sh", self.node(number) / "resume.sh"], check=False, timeout=30)
            if not self.serves(number):
                self.start(number)
        wait_until(self.whole, 120, "the stand-in to be whole")

    def prepare(self) -> None:
        """Write the configuration of every node and the operator's scripts."""
        runtime = ensure_kafka(lambda _: None)
        self._certificates()
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        modules = "org.apache.kafka.common.security"
        jaas = f'{modules}.plain.PlainLoginModule required user_{USER}="{quoted}";'.replace("\\", "\\\\")
        for number, ports in self.ports.items():
            folder = self.node(number)
            runtime.format(folder / "data", self.cluster_id, number)
            leads = number == 1
            (folder / "server.properties").write_text(
                PROPERTIES.format(
                    id=number,
                    roles="broker,controller" if leads else "broker",
                    more=f",CONTROLLER://127.0.0.1:{ports['controller']}" if leads else "",
                    voter=self.ports[1]["controller"],
                    jaas=jaas,
                    keys=self.keys,
                    data=folder / "data",
                    token=f"{modules}.oauthbearer.OAuthBearerLoginModule required;",
                    validator=f"{modules}.oauthbearer.OAuthBearerValidatorCallbackHandler",
                    scram=f"{modules}.scram.ScramLoginModule required;",
                    **ports,
                )
            )
            allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{self.keys}/jwks.json"
            options = [allowed, "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            command = runtime.command("kafka.Kafka", str(folder / "server.properties"), options=options)
            start = f"{processes.SUPERVISED}=1 setsid {shlex.join(command)} >>log 2>&1 </dev/null &"
            for verb, script in {**VERBS, "start": f"{start}\necho $! >pid"}.items():
                (folder / f"{verb}.sh").write_text(f"cd {shlex.quote(str(folder))}\n{script}\n")

    def _certificates(self) -> None:
        """Create a self-signed broker certificate, and a client certificate with an encrypted key."""
        self.keys.mkdir()
        new = shlex.split("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -days 30")
        for arguments in (
            [
                "-subj",
                "/CN=stand-in",
                "-addext",
                f"subjectAltName=IP:{HOST},DNS:localhost",
                "-nodes",
                "-keyout",
                "broker.key",
                "-out",
                "ca.pem",
            ],
            [
                "-subj",
                "/O=Stand-in/CN=chaos",
                "-passout",
                "env:KEY_PASSWORD",
                "-keyout",
                "chaos.key",
                "-out",
                "chaos.pem",
            ],
        ):
            subprocess.run(
                [*new, *arguments],
                check=True,
                capture_output=True,
                timeout=60,
                cwd=self.keys,
                env={**os.environ, "KEY_PASSWORD": KEY_PASSWORD},
            )
        both = (self.keys / "broker.key").read_text() + self.ca.read_text()
        (self.keys / "broker.pem").write_text(both)
        TokenEndpoint.write_keys(self.keys)

    # Foreign resources: those that do not belong to the harness.

    def settle(self) -> None:
        """Create a SCRAM user, and foreign topics with records, group offsets and a transactional id."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        login = UserScramCredentialUpsertion(USER, how, PASSWORD.encode())
        self.client.alter_user_scram_credentials([login], request_timeout=10)[USER].result(10)
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
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "bookkeeping", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["payments"])
        wait_until(lambda: consumer.poll(1.0), 60, "the payments")
        consumer.commit(asynchronous=False)
        consumer.close()
        wait_until(self.whole, 120, "the stand-in to be whole")

    def grant(self, commands: list[str]) -> None:
        """Grant the rights that these kafka-acls.sh commands list."""
        rules = [rule for command in commands for rule in _rules(command)]
        for future in self.client.create_acls(rules, request_timeout=10).values():
            future.result(10)

    def foreign(self) -> dict[str, Any]:
        """Return the state of the foreign resources, to compare it with a later state.

        It contains partitions, end offsets, settings of topics and brokers, committed offsets of groups, and
        transactional ids.
        """
        client = self.client
        view = self.admin.metadata(None).partitions
        topics = sorted({p.topic for p in view if not p.topic.startswith(PREFIX)})
        kinds = [(ConfigResource.Type.TOPIC, name) for name in topics]
        kinds += [(ConfigResource.Type.BROKER, str(i)) for i in self.ports]
        # Make one call per resource, because a request may describe only one broker.
        asked = [client.describe_configs([ConfigResource(*one)], request_timeout=10) for one in kinds]
        groups = client.list_consumer_groups(request_timeout=10).result(10).valid
        from harness.kafka.coordinators import coordinated_transactions
        from harness.witness.plain_consumer import group_positions

        names = sorted(g.group_id for g in groups if not g.group_id.startswith(PREFIX))
        ids = {t for i in self.ports for t in coordinated_transactions(self.admin, i)}
        return {
            "partitions": [(p.topic, p.partition, sorted(p.replicas)) for p in view if p.topic in topics],
            "ends": {name: self.admin.end_offsets(name) for name in FOREIGN},
            "configs": {
                f"{r.restype} {r.name}": {k: v.value for k, v in f.result(60).items()}
                for one in asked
                for r, f in one.items()
            },
            "positions": {name: group_positions(self.servers, name) for name in names},
            "ids": sorted(t for t in ids if not t.startswith(PREFIX)),
        }

    def ours(self) -> list[str]:
        """Return the topics whose names start with the harness's prefix."""
        return sorted({p.topic for p in self.admin.metadata(None).partitions if p.topic.startswith(PREFIX)})

    def lacking(self) -> int:
        """Return the number of partitions of foreign topics that now have a replica outside the ISR."""
        view = self.admin.metadata(None).partitions
        return sum(set(p.isr) != set(p.replicas) for p in view if not p.topic.startswith(PREFIX))


def _rules(command: str) -> Iterator[AclBinding]:
    words = shlex.split(command)
    who = words[words.index("--allow-principal") + 1]
    pattern = ResourcePatternType.PREFIXED if "prefixed" in words else ResourcePatternType.LITERAL
    kinds = {
        "--topic": ResourceType.TOPIC,
        "--group": ResourceType.GROUP,
        "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    }
    kind, name = next((kinds[word], words[i + 1]) for i, word in enumerate(words) if word in kinds)
    for i, word in enumerate(words):
        if word == "--operation":
            operation = AclOperation[words[i + 1].upper()]
            yield AclBinding(kind, name, pattern, who, "*", operation, AclPermissionType.ALLOW)


@contextmanager
def stand_in(folder: Path) -> Iterator[StandIn]:
    """Start the cluster; at the end, end all its processes."""
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
