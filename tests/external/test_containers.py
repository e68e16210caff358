"""A run with node faults on brokers in containers, which the harness finds by the user's label."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.base.errors import ExitCode
from harness.base.ports import free_ports
from harness.base.waits import wait_until
from harness.kafka.admin import Admin, random_cluster_id
from harness.provision.images import ensure_images

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.soak]
HOST = "127.0.0.1"
SETTINGS = {
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "OPEN",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "2",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "3",
    "KAFKA_MIN_INSYNC_REPLICAS": "1",
    "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
    "KAFKA_BROKER_SESSION_TIMEOUT_MS": "3000",
    "KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "500",
    "KAFKA_REPLICA_LAG_TIME_MAX_MS": "5000",
    "KAFKA_AUTO_LEADER_REBALANCE_ENABLE": "false",
    "KAFKA_HEAP_OPTS": "-Xms64m -Xmx256m",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
SCENARIO = """[scenario]
name = "short"
shows = "A producer, while a container is killed, frozen and stopped."
[plan]
steady = "2s"
duration = "4s"
[limits]
recovery = "60s"
[[workload]]
kind = "idempotent"
topic = "clicks"
rate = 200
"""


class Containers(NamedTuple):
    """Two brokers: their addresses and the label that identifies them."""

    cluster_id: str
    bootstrap: list[str]
    label: str


@pytest.fixture
def containers() -> Iterator[Containers]:
    """Yield two brokers in containers on the host network; the first is also the controller."""
    import docker

    ports, label = free_ports(3), f"somebodys.{uuid.uuid4().hex[:8]}"
    cluster_id, client, made = random_cluster_id(), docker.from_env(), []
    try:
        for number in (1, 2):
            listener = f"OPEN://{HOST}:{ports[number]}"
            leads = f",CONTROLLER://{HOST}:{ports[0]}" if number == 1 else ""
            environment = SETTINGS | {
                "CLUSTER_ID": cluster_id,
                "KAFKA_NODE_ID": str(number),
                "KAFKA_LISTENERS": listener + leads,
                "KAFKA_PROCESS_ROLES": "broker,controller" if leads else "broker",
                "KAFKA_ADVERTISED_LISTENERS": listener,
                "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@{HOST}:{ports[0]}",
            }
            made.append(
                client.containers.run(
                    ensure_images(lambda _: None).kafka,
                    detach=True,
                    network_mode="host",
                    labels={label: f"broker-{number}"},
                    environment=environment,
                )
            )
        admin = Admin({number: (HOST, ports[number]) for number in (1, 2)}, timeout=10)
        wait_until(lambda: len(admin.metadata(()).brokers) == 2, 120, "both brokers")
        yield Containers(cluster_id, [f"{HOST}:{ports[1]}", f"{HOST}:{ports[2]}"], label)
    finally:
        for container in made:
            container.remove(force=True, v=True)
        client.close()


def test_a_container_is_killed_frozen_and_stopped_in_a_run(
    containers: Containers, tmp_path: Path, evidence: Callable[..., None]
) -> None:
    (tmp_path / "cluster.toml").write_text(f"""[cluster]
id = "{containers.cluster_id}"
bootstrap = {json.dumps(containers.bootstrap)}
prefix = "eos-chaos-"
[topics]
replication = 2
min_insync = 1
[faults]
allowed = ["kill", "pause", "stop"]
[limits]
deadline = "5m"
bytes_per_second = "1MB/s"
storage = "100MB"
abort_file = "stop"
foreign_under_replicated = 100
[nodes]
docker_label = "{containers.label}=broker-{{id}}"
[evidence]
logs = ["nodes"]
""")
    faults = [
        f'[[fault]]\nfault = "{kind}"\ntarget = "kafka-2"\nat = "{at}"\nlasts = "1s"\n'
        for kind, at in (("kill", "1s"), ("pause", "2s"), ("stop", "3s"))
    ]
    (tmp_path / "short.toml").write_text("\n".join([SCENARIO, *faults]))
    typed = f"run short.toml --cluster cluster.toml --i-understand {containers.cluster_id} --move-foreign"
    command = [Path(sys.executable).with_name("eos"), *typed.split(), "--state", "state", "--runs", "runs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path)

    assert done.returncode == ExitCode.VALID, done.stderr
    run = tmp_path / "runs" / "short" / "latest"
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    bites = {event["fault"]: event["bite"] for event in events if event["event"] == "injected"}
    healed = {event["fault"]: event["took_s"] for event in events if event["event"] == "healed"}
    # The Docker engine reports each effect: an exit by signal 9, a paused container, a clean exit.
    assert bites["kill"] == {"exit_code": {"kafka-2": 137}}
    assert bites["pause"] == {"state": {"kafka-2": "paused"}}
    assert set(bites["stop"]["exit_code"]) == {"kafka-2"}
    assert set(healed) == {"kill", "pause", "stop"}
    assert all((run / "logs" / f"kafka-{number}.log").stat().st_size > 1000 for number in (1, 2))
    evidence(bites=bites, healed=healed)
