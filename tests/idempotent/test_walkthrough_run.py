"""The walkthrough from end to end: seven steps with their evidence, and a verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.walkthroughs.walkthrough_page import NAME
from tests.tapped import Evidence
from tests.walkthrough_case import carry_out

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


@pytest.mark.timing
def test_the_walkthrough_is_valid_and_each_step_has_its_evidence(
    cluster: Cluster, tmp_path: Path, evidence: Evidence
) -> None:
    page = (carry_out(cluster, "idempotent-walkthrough", 7, tmp_path, evidence) / NAME).read_text()
    assert "(retry of" in page
