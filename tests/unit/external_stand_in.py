"""Stand-in for an external cluster of two brokers, 0 and 7, with answers set by a test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from harness.base.units import Duration, Rate, Size
from harness.cluster.external.cluster_file import (
    ClusterFile,
    ClusterPart,
    LimitsPart,
    LinksPart,
    NodesPart,
    ProxyPart,
)
from harness.cluster.external.external_cluster import ExternalCluster
from harness.cluster.state_directory import State
from harness.kafka.admin import Metadata, PartitionInfo
from harness.scenario import Scenario, load
from harness.scenario.plan import Plan, draw

ID = "4L6g3nShT-eMCtK--X86sw"
FILE = ClusterFile(
    cluster=ClusterPart(id=ID, bootstrap=["127.0.0.1:1"], prefix="eos-chaos-"),
    limits=LimitsPart(
        deadline=Duration(60), bytes_per_second=Rate(10**6), storage=Size(10**8), abort_file="/no/such/file"
    ),
    links=LinksPart(toxiproxy="start"),
    proxy=[ProxyPart(broker=0, listen="127.0.0.1:2", upstream="127.0.0.1:1")],
    nodes=NodesPart(kill="true", start="true"),
)
VIEW = Metadata(ID, frozenset({0, 7}), (), {0: ("127.0.0.1", 1), 7: ("127.0.0.1", 3)})
TOPIC, GROUP = "eos-chaos-orders.ab12cd34", "eos-chaos-billing.ab12cd34"


class Brokers:
    """Stub of the brokers: the existing topics, and the error codes of deleting each consumer group."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.group_codes: list[int] = []
        self.deleted: list[str] = []
        self.holder = 0

    def metadata(self, _: object) -> Any:
        return SimpleNamespace(partitions=[PartitionInfo(t, 0, 0, 0, (0,), (0,)) for t in self.topics])

    def partition(self, topic: str, partition: int) -> PartitionInfo:
        return PartitionInfo(topic, partition, self.holder, 0, (0,), (0,))

    def delete_topics(self, names: list[str]) -> None:
        self.deleted += names
        self.topics = [name for name in self.topics if name not in names]

    def coordinator(self, _kind: str, _name: str) -> int:
        return self.holder

    def call(self, _broker: int, request: Any) -> Any:
        code = self.group_codes.pop(0)
        self.deleted += request.groups_names if code in (0, 69) else []
        return SimpleNamespace(results=[SimpleNamespace(error_code=code)])


class Observed(ExternalCluster):
    """An external cluster that records the starts and ends of its Toxiproxy."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FILE, State(folder / "state"), VIEW)
        self.fake_brokers = Brokers()
        self.admin = cast(Any, self.fake_brokers)
        self.proxied: list[str] = []

    def start_proxies(self) -> None:
        self.proxied.append("start")

    def end_proxies(self) -> None:
        self.proxied.append("end")


def planned(folder: Path, faults: str = "") -> tuple[Scenario, Plan]:
    path = folder / "one.toml"
    path.write_text('[scenario]\nname = "one"\nshows = "x"\n[[workload]]\nkind = "idempotent"\n' + faults)
    loaded = load(path, external=True)
    return loaded, draw(loaded, 1)
