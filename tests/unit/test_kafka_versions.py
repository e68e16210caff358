"""Versions of Kafka: their lock files, what they support, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.base.errors import CapabilityError, RefusedError, UsageError
from harness.cluster import lifecycle
from harness.cluster.broker_settings import SETTINGS, settings_for
from harness.cluster.process_backend import ProcessBackend
from harness.cluster.state_directory import ClusterRecord, State
from harness.provision.image_build import recipes
from harness.provision.images import KafkaChoice
from harness.provision.jars import class_path, kafka_lock, pinned_jars, read_lock
from harness.provision.kafka_runtime import cached_runtime
from harness.provision.kafka_versions import (
    DEFAULT_KAFKA,
    KafkaFeature,
    check_version,
    known_versions,
    numbers,
    require_features,
    supports,
)
from harness.scenario import find, load
from harness.scenario.kafka_needs import check_kafka, kafka_needs
from tools.lock_kafka import lock_lines

OLDER = [version for version in known_versions() if version != DEFAULT_KAFKA]


def test_the_five_versions_are_known_and_the_newest_is_first() -> None:
    assert {"4.3.1", "4.2.1", "4.1.2", "4.0.2", "3.9.2"} <= set(known_versions())
    assert list(known_versions()) == sorted(known_versions(), key=numbers, reverse=True)
    assert DEFAULT_KAFKA in known_versions()


@pytest.mark.parametrize("version", known_versions())
def test_a_lock_pins_kafkas_own_jars_in_this_version(version: str) -> None:
    jars = read_lock(kafka_lock(version))
    assert all(jar.jar_set == "kafka" and re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {version}
    assert {"kafka_2.13", "kafka-clients", "kafka-metadata", "kafka-raft"} <= {jar.artifact for jar in jars}
    assert len({(jar.group, jar.artifact) for jar in jars}) == len(jars)
    # With two versions of slf4j, its logger is not found, and the nodes log nothing.
    assert len({jar.version for jar in jars if jar.group == "org.slf4j"}) == 1
    assert {jar.artifact for jar in jars if jar.group == "org.slf4j"} == {"slf4j-api", "slf4j-simple"}


def test_a_jar_with_the_same_name_has_the_same_hash_in_every_lock() -> None:
    hashes: dict[Path, set[str]] = {}
    for version in known_versions():
        for jar in pinned_jars(version):
            hashes.setdefault(jar.path, set()).add(jar.sha256)
    assert [path.name for path, found in hashes.items() if len(found) > 1] == []


@pytest.mark.parametrize("version", OLDER)
def test_each_version_has_its_own_class_path_runtime_and_image(version: str) -> None:
    assert class_path("kafka", kafka=version) != class_path("kafka")
    assert class_path("spark", kafka=version) == class_path("spark")
    assert cached_runtime(version).archive != cached_runtime().archive
    assert recipes(version)["kafka"].tag == f"eos-harness/kafka:{version}"
    assert recipes(version)["kafka"].content != recipes()["kafka"].content
    assert recipes(version)["toxiproxy"] == recipes()["toxiproxy"]
    assert KafkaChoice(version).official("kafka") == f"apache/kafka:{version}"


def test_a_named_image_replaces_the_image_of_the_version() -> None:
    assert KafkaChoice(image="registry.example/kafka:1").chosen("kafka") == "registry.example/kafka:1"
    assert KafkaChoice("4.1.2").chosen("kafka") == ""


@pytest.mark.parametrize("version", ["4.2.7", "5.0.0"])
def test_an_unknown_version_is_refused_with_the_known_ones(version: str) -> None:
    with pytest.raises(UsageError, match=f"Kafka {version} is not among the versions") as raised:
        check_version(version)
    assert "4.3.1, 4.2.1, 4.1.2, 4.0.2, 3.9.2" in raised.value.hint
    assert f"tools.lock_kafka {version}" in raised.value.hint


@pytest.mark.parametrize("text", ["newest", "4.3", "4.3.1-rc1", "../4.3.1", "4.3.1\n"])
def test_a_text_that_is_no_version_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(UsageError, match="is not a version of Kafka") as raised:
        check_version(text)
    assert "3.9.2" in raised.value.hint


def test_what_an_older_version_lacks_is_declared() -> None:
    for feature in KafkaFeature:
        assert supports(DEFAULT_KAFKA, feature)
        assert not supports("3.9.2", feature)
    require_features("4.0.2", KafkaFeature, "a scenario")
    with pytest.raises(CapabilityError, match=r"a scenario needs transaction\.version") as raised:
        require_features("3.9.2", [KafkaFeature.TRANSACTION_VERSION], "a scenario")
    assert "4.0 or newer" in raised.value.hint


def test_settings_that_a_version_does_not_know_are_left_out() -> None:
    left_out = {s.name for s in SETTINGS if s.needs is KafkaFeature.SHARE_COORDINATOR}
    assert len(left_out) == 2
    assert settings_for("broker").keys() - settings_for("broker", "3.9.2").keys() == left_out
    assert settings_for("broker", "4.0.2") == settings_for("broker")
    assert settings_for("controller", "3.9.2") == settings_for("controller")


@pytest.mark.parametrize(("version", "known"), [("3.9.2", False), ("4.0.2", True)])
def test_a_node_of_the_process_back_end_gets_the_settings_of_its_version(
    tmp_path: Path, version: str, known: bool
) -> None:
    record = ClusterRecord(
        name="n", backend="process", profile="quick", cluster_id="c", port_base=12_000, kafka=version
    )
    backend = ProcessBackend(State(tmp_path), record)
    properties = backend._properties(backend.nodes()[-1])
    assert ("share.coordinator." in properties) is known
    assert "transaction.state.log.min.isr=2" in properties


@pytest.mark.parametrize(
    ("name", "changes", "part"),
    [
        ("rebalance-storm", {"workload.1.protocol": "consumer"}, r"workload\[1\]\.protocol"),
        ("delayed-endtxn-control", {}, "the walkthrough endtxn_control"),
        ("late-marker-control", {}, "the walkthrough late_marker_control"),
        ("skipped-marker-clients", {}, "the walkthrough skipped_marker_clients"),
    ],
)
def test_a_scenario_that_needs_more_than_a_version_has_is_refused_by_name(
    name: str, changes: dict[str, str], part: str
) -> None:
    scenario = load(find(name), changes)
    with pytest.raises(CapabilityError, match=rf"{part} of {name} needs .* Kafka 3\.9\.2 does not have"):
        check_kafka(scenario, "3.9.2")
    check_kafka(scenario, "4.0.2")


def test_a_fault_on_a_feature_needs_the_feature(tmp_path: Path) -> None:
    file = tmp_path / "level.toml"
    file.write_text(
        '[scenario]\nname = "level"\nshows = "A feature."\n[[workload]]\nkind = "idempotent"\n'
        '[[fault]]\nfault = "feature_level"\ntarget = "all"\nlevel = 1\n'
    )
    assert list(kafka_needs(load(file))) == [("fault[0]", KafkaFeature.TRANSACTION_VERSION)]
    with pytest.raises(UsageError, match=r"cluster\.kafka.*transaction\.version"):
        load(file, {"cluster.kafka": "3.9.2"})


def test_an_unknown_version_in_a_scenario_is_refused_when_the_file_is_read() -> None:
    with pytest.raises(UsageError, match=r"cluster\.kafka.*Kafka 4\.9\.9 is not among"):
        load(find("jitter"), {"cluster.kafka": "4.9.9"})
    assert load(find("jitter"), {"cluster.kafka": "4.1.2"}).cluster.kafka == "4.1.2"


@pytest.mark.parametrize(
    ("kafka", "image", "fits"),
    [
        ("", "", True),
        ("4.1.2", "", True),
        ("4.3.1", "", False),
        ("", "mirror/kafka:4.1.2", True),
        ("4.1.2", "other/kafka:4.1.2", False),
    ],
)
def test_a_running_cluster_of_another_version_is_refused(
    tmp_path: Path, kafka: str, image: str, fits: bool
) -> None:
    record = ClusterRecord(
        name="n",
        backend="compose",
        profile="quick",
        cluster_id="c",
        port_base=12_000,
        kafka="4.1.2",
        images={"kafka": "mirror/kafka:4.1.2"},
    )
    if fits:
        lifecycle._check_kafka(State(tmp_path), record, kafka, image)
        return
    with pytest.raises(RefusedError, match=r"a cluster with Kafka 4\.1\.2") as raised:
        lifecycle._check_kafka(State(tmp_path), record, kafka, image)
    assert "--state" in raised.value.hint


def test_an_image_of_kafka_needs_containers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--kafka-image needs containers"):
        lifecycle.up(State(tmp_path), "process", "quick", lambda _: None, kafka_image="mirror/kafka:1")
    assert not (tmp_path / "cluster.json").exists()


def test_the_lines_of_a_lock_name_sets_coordinates_and_hashes(tmp_path: Path) -> None:
    for name in (
        "org.apache.kafka--kafka-clients--9.9.9",
        "com.github.luben--zstd-jni--1.5.6-10",
        "org.slf4j--slf4j-api--1.7.36",
        "org.apache.logging.log4j--log4j-core--2.25.4",
    ):
        (tmp_path / f"{name}.jar").write_bytes(name.encode())
    logging = [jar for jar in pinned_jars() if jar.group == "org.slf4j"]
    head, *lines = lock_lines("9.9.9", tmp_path, logging)
    assert "Kafka 9.9.9" in head
    assert [line.split()[1] for line in lines] == [
        "org.apache.kafka:kafka-clients:9.9.9",
        "com.github.luben:zstd-jni:1.5.6-10",
        *(f"org.slf4j:{jar.artifact}:{jar.version}" for jar in logging),
    ]
    assert all(re.fullmatch(r"kafka \S+:\S+:\S+ [0-9a-f]{64}", line) for line in lines)
