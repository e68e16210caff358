"""A part of the client matrix on the cluster of the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.walkthroughs.matrix.cases import CASES
from harness.walkthroughs.matrix.libraries import find_libraries
from harness.walkthroughs.matrix.sweep import Sweep

pytestmark = [pytest.mark.cluster, pytest.mark.soak]


def test_new_java_clients_are_protected_where_an_older_one_is_exposed(
    cluster: Cluster, tmp_path: Path
) -> None:
    attempts = list(Sweep(cluster, 1, tmp_path, print).attempts(find_libraries(("java",)), CASES))
    late = {a.version: a.mark for a in attempts if a.case == "late abort"}
    assert late == {"4.4.0": "holds", "4.3.1": "holds", "3.9.2": "exposed"}
