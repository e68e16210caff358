"""The walkthrough from end to end: eight steps with their evidence, and a verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.evidence.run_directory import RunDirectory
from harness.evidence.step_report import FILE, WalkthroughStep
from harness.walkthroughs.walkthrough_page import NAME
from tests.tapped import Evidence
from tests.walkthrough_case import carry_out

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


@pytest.mark.timing
def test_the_walkthrough_is_valid_and_each_step_has_its_evidence(
    cluster: Cluster, tmp_path: Path, evidence: Evidence
) -> None:
    directory = carry_out(cluster, "transactional-walkthrough", 8, tmp_path, evidence)
    page = (directory / NAME).read_text()
    assert "is PrepareCommit" in page
    assert "marker ABORT into __consumer_offsets" in page
    # In every run, the observations must contradict these statements about Kafka from textbooks.
    steps = RunDirectory.open(directory).read(FILE, list[WalkthroughStep])
    differ = [c.textbook for step in steps for c in step.claims if c.comparison == "different"]
    for text in ("TxnOffsetCommit goes to", "gets a COMMIT marker", "behind the last stable offset"):
        assert any(text in textbook for textbook in differ), text
