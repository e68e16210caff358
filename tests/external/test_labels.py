"""Nodes in containers with the user's label: the harness finds, kills, freezes, starts and audits them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.base.errors import HarnessError
from harness.cluster.external.audit_log import Audit
from harness.cluster.external.external_nodes import AuditedNode, labelled_node
from harness.cluster.nodes import Condition
from harness.provision.images import ensure_images

pytestmark = pytest.mark.engine


@pytest.fixture
def label() -> Iterator[str]:
    """Yield the name of a label with different values on two containers, which are not brokers."""
    import docker

    image = ensure_images(lambda _: None).toxiproxy
    client = docker.from_env()
    name = f"somebodys.{uuid.uuid4().hex[:8]}"
    made = [client.containers.run(image, detach=True, labels={name: f"node-{i}"}) for i in (1, 2)]
    yield name
    for container in made:
        container.remove(force=True, v=True)
    client.close()


def test_a_labelled_container_is_killed_frozen_and_started(label: str, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    node = AuditedNode(labelled_node("kafka-2", 2, f"{label}=node-{{id}}", "a-host"), Audit(audit))
    other = labelled_node("kafka-1", 1, f"{label}=node-{{id}}", "a-host")

    assert node.status().condition is Condition.RUNNING
    node.pause()
    assert node.status().condition is Condition.PAUSED
    node.resume()
    assert node.status().condition is Condition.RUNNING
    node.kill()
    assert (node.status().condition, node.status().exit_code) == (Condition.EXITED, 137)
    assert other.status().condition is Condition.RUNNING
    node.start()
    assert node.status().condition is Condition.RUNNING
    assert "evidence.logs" in node.log()
    noted = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["node"], line["verb"]) for line in noted] == [
        ("kafka-2", verb) for verb in ("pause", "resume", "kill", "start")
    ]


def test_a_label_that_matches_several_containers_is_refused(label: str) -> None:
    with pytest.raises(HarnessError, match=f"2 containers of kafka-1 have the label {label}; expected one"):
        labelled_node("kafka-1", 1, label, "a-host").status()
