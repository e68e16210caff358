"""The wire tap between the brokers: when it exists, what the brokers advertise, and what it decodes."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.base import processes
from harness.base.errors import CapabilityError, RefusedError, UsageError
from harness.cluster import compose_backend, lifecycle, network_links, process_backend
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.compose_backend import ComposeBackend
from harness.cluster.layout import BROKER_IDS, BrokerListener, Ports
from harness.cluster.process_backend import ProcessBackend
from harness.cluster.state_directory import ClusterRecord, State
from harness.cluster.tap_process import tap_command, tap_folder
from harness.provision.paths import checkout_dir
from harness.run import make_run
from harness.scenario import Scenario, load
from harness.scenario.plan import draw
from harness.tap.decoded_fields import Facts, MarkerFields, PartitionFields
from harness.tap.frame_decoder import Decoder
from harness.tap.rules import Rule
from harness.tap.tap_client import ensure_tap, running_taps
from tests.tap_rig import framed, raw_answer, rig

PORTS = Ports(12_000)
SCENARIO = """
[scenario]
name = "between-brokers"
shows = "A late marker."

[cluster]
internal_tap = true

[[workload]]
kind = "transactional"

[[fault]]
fault = "hold_frame"
target = "all"
api = "WriteTxnMarkers"
listener = "INTERNAL"
"""


def record(*, internal_tap: bool, whole: bool = False) -> ClusterRecord:
    return ClusterRecord(
        name="eos-test",
        backend="process",
        profile="quick",
        cluster_id="c",
        port_base=PORTS.base,
        whole=whole,
        internal_tap=internal_tap,
    )


def properties(folder: Path, *, internal_tap: bool) -> dict[str, str]:
    """Return the settings of broker 2 of the process back end."""
    backend = ProcessBackend(State(folder), record(internal_tap=internal_tap))
    (broker,) = (node for node in backend.nodes() if node.node_id == 2)
    return dict(line.split("=", 1) for line in backend._properties(broker).splitlines())


def test_brokers_advertise_the_tap_and_listen_where_they_always_do(tmp_path: Path) -> None:
    without, tapped = (properties(tmp_path, internal_tap=on) for on in (False, True))
    different = {name for name in without if without[name] != tapped[name]}

    assert different == {"advertised.listeners"}
    inner = PORTS.inner(BrokerListener.INTERNAL, 2)
    assert f"INTERNAL://127.0.0.1:{inner}" in without["listeners"]
    assert f"INTERNAL://127.0.0.1:{inner}" in without["advertised.listeners"]
    assert f"INTERNAL://127.0.0.1:{PORTS.internal_tap(2)}" in tapped["advertised.listeners"]


def test_the_tap_listens_where_the_brokers_advertise_and_forwards_to_them(tmp_path: Path) -> None:
    state = State(tmp_path)
    *command, one, two, three = tap_command(state, record(internal_tap=True), BrokerListener.INTERNAL)

    assert command[1:] == ["-m", "harness.tap.server", str(state.nodes / "tap-internal"), "eos-test"]
    ways = [
        f"{b}=HOST:{PORTS.internal_tap(b)}=HOST:{PORTS.inner(BrokerListener.INTERNAL, b)}" for b in BROKER_IDS
    ]
    assert [one, two, three] == [way.replace("HOST", "127.0.0.1") for way in ways]
    assert command[3] != tap_command(state, record(internal_tap=True), BrokerListener.TAPPED)[3]


@pytest.mark.parametrize("internal_tap", [False, True])
def test_the_tap_starts_before_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, internal_tap: bool
) -> None:
    started: list[Path] = []
    monkeypatch.setattr(processes, "start_supervised", lambda _, folder: started.append(folder))
    monkeypatch.setattr(process_backend.ProcessNode, "start", lambda node: started.append(node.folder))
    state = State(tmp_path)

    ProcessBackend(state, record(internal_tap=internal_tap)).start()

    tap = tap_folder(state, BrokerListener.INTERNAL)
    assert (started[0] == tap) is internal_tap
    assert started.count(tap) == int(internal_tap)


def compose_record(*, internal_tap: bool) -> ClusterRecord:
    images = dict.fromkeys(("kafka", "toxiproxy", "nettools"), "image")
    kept = record(internal_tap=internal_tap)
    return msgspec.structs.replace(kept, backend="compose", images=images)


def test_containers_reach_the_tap_at_the_address_of_the_host_in_their_network(tmp_path: Path) -> None:
    state, kept = State(tmp_path), compose_record(internal_tap=True)
    variables = ComposeBackend(state, kept)._variables()
    *_, one, _two, _three = tap_command(state, kept, BrokerListener.INTERNAL)

    assert variables["EOS_INTERNAL_1"] == f"{PORTS.gateway}:{PORTS.internal_tap(1)}"
    assert one == f"1={variables['EOS_INTERNAL_1']}={PORTS.subnet}.11:9092"
    without = ComposeBackend(state, compose_record(internal_tap=False))._variables()
    assert not any(name.startswith("EOS_INTERNAL") for name in without)
    for broker in BROKER_IDS:
        assert f"INTERNAL://${{EOS_INTERNAL_{broker}:-" in (checkout_dir() / "docker-compose.yml").read_text()


def test_containers_with_this_tap_cannot_be_partitioned(tmp_path: Path) -> None:
    state = State(tmp_path)
    for internal_tap in (False, True):
        kept = compose_record(internal_tap=internal_tap)
        cluster = Cluster(state, kept, ComposeBackend(state, kept))
        cluster.require(Capability.INTERNAL_TAP)
        with (
            pytest.raises(CapabilityError, match="tap between its brokers") if internal_tap else nullcontext()
        ):
            cluster.require(Capability.PARTITION)


def test_an_engine_on_another_host_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(compose_backend.ComposeProject, "start", lambda _: started.append("nodes"))
    monkeypatch.setattr(processes, "start_supervised", lambda *_: started.append("tap"))
    loopback = SimpleNamespace(address="127.0.0.1")
    network = {"lo": [loopback]}
    monkeypatch.setattr(network_links.psutil, "net_if_addrs", lambda: network)
    backend = ComposeBackend(State(tmp_path), compose_record(internal_tap=True))

    with pytest.raises(CapabilityError, match="runs in a virtual machine or on another host") as raised:
        backend.start()
    assert "--backend process" in raised.value.hint
    network["bridge"] = [SimpleNamespace(address=PORTS.gateway)]
    backend.start()
    assert started == ["nodes", "nodes", "tap"]


def test_a_running_cluster_without_this_tap_is_not_reused_for_it(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.save(record(internal_tap=False, whole=True))

    with pytest.raises(RefusedError, match="no tap between its brokers") as raised:
        lifecycle.up(state, "process", "quick", lambda _: None, internal_tap=True)
    assert "--internal-tap" in raised.value.hint


def cluster_at(folder: Path, *, internal_tap: bool) -> Cluster:
    state, kept = State(folder), record(internal_tap=internal_tap)
    return Cluster(state, kept, ProcessBackend(state, kept))


def test_a_cluster_without_this_tap_starts_none(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no tap between its brokers"):
        ensure_tap(cluster_at(tmp_path, internal_tap=False), BrokerListener.INTERNAL)
    assert not tap_folder(State(tmp_path), BrokerListener.INTERNAL).exists()


@pytest.mark.parametrize(("internal_tap", "logs"), [(False, 1), (True, 2)])
def test_a_run_records_the_frames_of_every_tap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, internal_tap: bool, logs: int
) -> None:
    from harness.tap import tap_client

    monkeypatch.setattr(
        tap_client, "find_tap", lambda cluster, listener: tap_client.Tap(cluster.state.nodes, listener)
    )
    taps = running_taps(cluster_at(tmp_path, internal_tap=internal_tap))
    assert len({tap.log_name for tap in taps}) == logs


def scenario_in(folder: Path, text: str = SCENARIO) -> Scenario:
    file = folder / "s.toml"
    file.write_text(text)
    return load(file)


def test_only_a_scenario_with_this_tap_can_fault_its_frames(tmp_path: Path) -> None:
    scenario = scenario_in(tmp_path)
    assert scenario.cluster.internal_tap
    with pytest.raises(UsageError, match=r"fault\[0\]\.listener: this cluster has no tap") as raised:
        scenario_in(tmp_path, SCENARIO.replace("internal_tap = true", ""))
    assert "internal_tap = true" in raised.value.hint


def test_a_run_that_needs_this_tap_is_refused_without_it(tmp_path: Path) -> None:
    scenario = scenario_in(tmp_path)
    plan = draw(scenario, 1)
    make_run(cluster_at(tmp_path, internal_tap=True), scenario, plan, tmp_path)
    with pytest.raises(RefusedError, match="no tap between its brokers"):
        make_run(cluster_at(tmp_path, internal_tap=False), scenario, plan, tmp_path)


def markers_request(version: int) -> Any:
    """Return a request with two markers: an abort for two partitions, and a commit for one partition."""
    from kafka.protocol.producer import WriteTxnMarkersRequest as Request

    marker = Request.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic
    versioned = {"transaction_version": 2} if version >= 2 else {}
    return Request(
        markers=[
            marker(
                producer_id=7,
                producer_epoch=3,
                transaction_result=False,
                topics=[topic(name="a", partition_indexes=[0, 2])],
                coordinator_epoch=5,
            ),
            marker(
                producer_id=8,
                producer_epoch=0,
                transaction_result=True,
                topics=[topic(name="b", partition_indexes=[1])],
                coordinator_epoch=6,
                **versioned,
            ),
        ],
        version=version,
    )


@pytest.mark.parametrize("version", [1, 2])
def test_facts_of_markers(version: int) -> None:
    facts = Decoder().request(27, version, framed(markers_request(version)))

    assert facts == Facts(
        markers=[
            MarkerFields(producer_id=7, epoch=3, decision="abort", coordinator_epoch=5),
            MarkerFields(
                producer_id=8,
                epoch=0,
                decision="commit",
                coordinator_epoch=6,
                transaction_version=2 if version == 2 else 0,
            ),
        ],
        partitions=[
            PartitionFields(topic="a", partition=0),
            PartitionFields(topic="a", partition=2),
            PartitionFields(topic="b", partition=1),
        ],
    )


def test_facts_of_the_answer_to_markers() -> None:
    from kafka.protocol.producer import WriteTxnMarkersResponse as Response

    result = Response.WritableTxnMarkerResult
    topic = result.WritableTxnMarkerTopicResult
    part = topic.WritableTxnMarkerPartitionResult
    answer = Response(
        markers=[
            result(
                producer_id=7, topics=[topic(name="a", partitions=[part(partition_index=0, error_code=47)])]
            )
        ],
        version=2,
    )
    facts = Decoder().response(27, 2, framed(answer))
    assert facts.partitions == [PartitionFields(topic="a", partition=0, error="INVALID_PRODUCER_EPOCH")]
    assert facts.refusals == ["INVALID_PRODUCER_EPOCH"]


def test_facts_of_a_broker_that_asks_about_several_transactions() -> None:
    from kafka.protocol.producer import AddPartitionsToTxnRequest as Request

    transaction = Request.AddPartitionsToTxnTransaction
    request = Request(
        transactions=[
            transaction(
                transactional_id=f"t{i}",
                producer_id=i,
                producer_epoch=0,
                verify_only=True,
                topics=[transaction.AddPartitionsToTxnTopic(name="a", partitions=[i])],
            )
            for i in (1, 2)
        ],
        version=4,
    )
    facts = Decoder().request(24, 4, framed(request))

    assert [(t.transactional_id, t.verify_only) for t in facts.transactions] == [("t1", True), ("t2", True)]
    assert facts.names_transactional_id("t2")
    assert facts.names_producer_id(2)
    assert not facts.names_transactional_id("t3")
    assert not facts.names_producer_id(3)


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize(("replica", "expected"), [(3, 3), (-1, None)])
def test_facts_of_a_fetch_name_the_broker_that_copies(
    version: int, replica: int, expected: int | None
) -> None:
    from kafka.protocol.consumer import FetchRequest

    source: dict[str, Any] = (
        {"replica_id": replica}
        if version < 15
        else {"replica_state": FetchRequest.ReplicaState(replica_id=replica, replica_epoch=1)}
    )
    request = FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[],
        forgotten_topics_data=[],
        rack_id="",
        version=version,
        **source,
    )
    assert Decoder().request(1, version, framed(request)).replica == expected


@pytest.mark.parametrize(
    ("fields", "hits"),
    [
        ({"producer_id": 8}, True),
        ({"producer_id": 9}, False),
        ({"producer_id": 7, "topic": "a", "partition": 2}, True),
        ({"producer_id": 7, "topic": "a", "partition": 1}, False),
        ({"transactional_id": "t"}, False),
        ({"client_id": "broker-2-txn-marker-sender"}, True),
        ({"client_id": "broker-3-txn-marker-sender"}, False),
    ],
    ids=str,
)
def test_a_rule_selects_markers_by_producer_and_partition(fields: dict[str, Any], *, hits: bool) -> None:
    async def run() -> None:
        async with rig(raw_answer) as made:
            made.hub.arm(Rule(id="r", verb="lose_request", api="WriteTxnMarkers", **fields))
            client = await made.client()
            frame = framed(markers_request(2), client_id="broker-2-txn-marker-sender")
            assert bool(await client.ask(frame)) is not hits
            assert bool(made.hits) is hits
            await made.settled()

    asyncio.run(run())
