"""docker-compose.yml, which works without Python, agrees with the settings of the harness."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from harness.cluster import compose_backend
from harness.cluster.broker_settings import (
    SESSION_TIMEOUT_MS,
    SETTINGS,
    Profile,
    heap_options,
    jvm_options,
    settings_for,
)
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS, BrokerListener, node_name
from harness.cluster.network_links import node_address, served_port
from harness.cluster.proxy_names import proxies_of
from harness.provision.image_build import recipes
from harness.provision.images import official_images
from harness.provision.jars import pinned_jars
from harness.provision.kafka_versions import DEFAULT_KAFKA, NEWEST_CLIENT
from harness.provision.paths import checkout_dir, resource
from harness.provision.toxiproxy_binary import TOXIPROXY_VERSION

COMPOSE = (checkout_dir() / "docker-compose.yml").read_text()


def block(name: str) -> dict[str, str]:
    """Return the KAFKA_ variables of a top-level block of docker-compose.yml as settings."""
    body = re.search(rf"^{name}:.*\n((?:(?:  .*)?\n)*)", COMPOSE, re.MULTILINE)
    assert body, f"no block {name}"
    found = re.findall(r'^  KAFKA_([A-Z_]+): "?([^"\n]*)"?$', body[1], re.MULTILINE)
    repeated = [key for key, count in Counter(key for key, _ in found).items() if count > 1]
    assert not repeated
    return {key.lower().replace("_", "."): value for key, value in found}


def default(variable: str) -> str:
    """Return the default of a variable; it must be the same wherever the file uses the variable."""
    found = set(re.findall(rf"\$\{{{variable}:-([^}}]*)\}}", COMPOSE))
    assert len(found) == 1, f"{variable} has the defaults {found}"
    return str(found.pop())


def test_controllers_have_exactly_the_settings_of_the_table() -> None:
    assert block("x-kafka") == settings_for("controller")


def test_brokers_have_exactly_the_settings_of_the_table() -> None:
    assert block("x-kafka") | block("x-kafka-broker") == settings_for("broker")
    assert not block("x-kafka").keys() & block("x-kafka-broker").keys()


def test_every_setting_is_unique_and_has_a_reason() -> None:
    names = [setting.name for setting in SETTINGS]
    assert len(names) == len(set(names))
    assert all(len(setting.why) > 10 for setting in SETTINGS)


def test_a_broker_session_is_three_seconds_with_several_heartbeats() -> None:
    broker = settings_for("broker")
    assert SESSION_TIMEOUT_MS <= 3000
    assert int(broker["broker.heartbeat.interval.ms"]) * 4 <= SESSION_TIMEOUT_MS


def test_the_compose_file_starts_the_quick_profile() -> None:
    assert default("EOS_JVM_OPTS").split() == jvm_options("quick")
    assert default("EOS_BROKER_HEAP").split() == heap_options("broker", "quick")
    assert default("EOS_CONTROLLER_HEAP").split() == heap_options("controller", "quick")


def test_load_env_is_the_load_profile() -> None:
    lines = (resource("docker/load.env")).read_text().splitlines()
    pairs = [line.partition("=")[::2] for line in lines if not line.startswith("#")]
    assert {name: value.split() for name, value in pairs} == {
        "EOS_JVM_OPTS": jvm_options("load"),
        "EOS_BROKER_HEAP": heap_options("broker", "load"),
        "EOS_CONTROLLER_HEAP": heap_options("controller", "load"),
    }


@pytest.mark.parametrize("profile", ["quick", "load"])
def test_heap_and_collector_are_explicit_and_fit_the_container(profile: Profile) -> None:
    assert any(re.fullmatch(r"-XX:\+Use\w+GC", option) for option in jvm_options(profile))
    for role, limit in (("broker", "EOS_BROKER_MEMORY"), ("controller", "EOS_CONTROLLER_MEMORY")):
        most = heap_options(role, profile)[1]  # type: ignore[arg-type]
        assert int(most.removeprefix("-Xmx").removesuffix("m")) * 1.4 <= int(default(limit).removesuffix("m"))


def test_the_compose_file_uses_every_variable_that_the_harness_sets() -> None:
    backend = compose_backend.ComposeBackend.__new__(compose_backend.ComposeBackend)
    backend._record = compose_backend.ClusterRecord(
        name="n",
        backend="compose",
        profile="quick",
        cluster_id="c",
        port_base=12_000,
        images={"kafka": "k", "toxiproxy": "t", "nettools": "n"},
        internal_tap=True,
    )
    set_by_harness = set(backend._variables())
    in_compose_file = set(re.findall(r"\$\{(\w+):-", COMPOSE))

    assert set_by_harness <= in_compose_file
    # The compose file has further variables, which only users set: memory limits, log levels, and the Spark
    # profile.
    assert in_compose_file - set_by_harness == {
        "EOS_BROKER_MEMORY",
        "EOS_CONTROLLER_MEMORY",
        "EOS_KAFKA_LOGGERS",
        "EOS_PORT_SPARK",
        "EOS_SPARK_CORES",
        "EOS_SPARK_IMAGE",
        "EOS_SPARK_MEMORY",
        "EOS_SPARK_MEMORY_LIMIT",
    }


def test_partitions_use_the_addresses_and_ports_of_the_compose_network() -> None:
    subnet = default("EOS_SUBNET")
    for node in (*BROKER_IDS, *CONTROLLER_IDS):
        service = re.search(rf"^  {node_name(node)}:\n(?:    .*\n)+", COMPOSE, re.MULTILINE)
        assert service
        expected = node_address(subnet, node).removeprefix(subnet)
        assert f'ipv4_address: "${{EOS_SUBNET:-{subnet}}}{expected}"' in service[0]
        assert f'KAFKA_NODE_ID: "{node}"' in service[0]
    assert f"INTERNAL://:{served_port(1)}," in COMPOSE
    assert f"KAFKA_LISTENERS: CONTROLLER://:{served_port(11)}\n" in COMPOSE
    assert f"KAFKA_LOG_DIRS: {compose_backend._DATA}\n" in COMPOSE


def test_the_proxy_map_has_the_harness_names_and_the_right_upstreams() -> None:
    proxies = json.loads((checkout_dir() / "toxiproxy" / "proxies.json").read_text())
    assert [p["name"] for p in proxies] == sorted(name for b in BROKER_IDS for name in proxies_of(b))
    ports = dict(re.findall(r"(PROXIED|TAPPED)://:(\d+)", COMPOSE))
    for proxy in proxies:
        listener, broker = proxy["name"].split("-")
        assert proxy["upstream"] == f"kafka-{broker}.fixed:{ports[listener.upper()]}"
        assert proxy["enabled"] is True
        port = proxy["listen"].removeprefix("0.0.0.0:")
        variable = {BrokerListener.PROXIED: "PROXIED", BrokerListener.TAPPED: "TAP_UPSTREAM"}[
            BrokerListener(listener.upper())
        ]
        assert (
            f'${{EOS_PORT_{variable}_{broker}:-{default(f"EOS_PORT_{variable}_{broker}")}}}:{port}"'
            in COMPOSE
        )


def test_versions_agree_everywhere() -> None:
    official = official_images()
    assert official == {
        "kafka": f"apache/kafka:{DEFAULT_KAFKA}",
        "toxiproxy": official["toxiproxy"].split(":")[0] + f":{TOXIPROXY_VERSION}",
    }
    assert recipes()["kafka"].tag.endswith(f":{DEFAULT_KAFKA}")
    assert recipes()["toxiproxy"].tag.endswith(f":{TOXIPROXY_VERSION}")
    kafka = {(j.jar_set, j.version) for j in pinned_jars() if j.group == "org.apache.kafka"}
    assert {one for one in kafka if one[0] != "spark"} == {
        ("kafka", DEFAULT_KAFKA),
        ("client", NEWEST_CLIENT),
        ("tools", DEFAULT_KAFKA),
    }
    (connector,) = (j for j in pinned_jars() if j.artifact.startswith("spark-sql-kafka"))
    series, _, patch = connector.version.rpartition(".")
    next_series = f"{series.rpartition('.')[0]}.{int(series.rpartition('.')[2]) + 1}"
    assert patch == "0", "the range below begins with the version of the connector"
    assert f'"pyspark>={series},<{next_series}"' in (checkout_dir() / "pyproject.toml").read_text()
    assert f"\npyspark=={connector.version} " in (checkout_dir() / "requirements.lock").read_text()
