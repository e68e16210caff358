"""The observation of each proposal (KIP) on a cluster."""

from __future__ import annotations

import pytest

from harness.clients.scripted.java_client import jdk_problem
from harness.cluster.cluster import Cluster
from harness.walkthroughs.kips import KIPS, observe

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

WITH_JAVA = {679, 691}


@pytest.mark.parametrize("number", KIPS)
def test_every_answer_is_the_expected_one(number: int, cluster: Cluster) -> None:
    if number in WITH_JAVA:
        assert jdk_problem() is None
    seen = observe(KIPS[number], cluster)

    assert seen
    assert [line for line in seen if not line.same] == []
