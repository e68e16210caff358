"""Contracts in SQL, run by Spark: the same results as the plain reader, down to the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.evidence.contract_statement import REFERENCES
from harness.evidence.observation import Window
from spark_jobs import contract_job
from spark_jobs.contract_job import main
from spark_jobs.kafka_source import RAW, KafkaSource
from tests.contract_cases import CASES, RUN, contract_of, records_of
from tests.unit.test_contract_tables import compare, observed

pytestmark = pytest.mark.spark
QUICK = (
    "holds, a field of an object",
    "is every, went back",
    "conserve, fractions",
    "expect, one is wrong",
    "each by SQL",
    "CSV",
    "is last, two rows of a key",
    "reference, fewer and more",
    "unique, what may be repeated and what may not",
)
"""Cases of every verb; the others run in a soak."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in CASES]
)
def test_spark_finds_the_same_as_the_plain_reader(
    spark: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    records = records_of(case)

    def read(_: object, __: object, windows: list[Window]) -> Any:
        mine = [r for r in records if r[0] == windows[0].topic]
        rows = [(key, value, topic, partition, offset, None) for topic, partition, offset, key, value in mine]
        return spark.createDataFrame(rows, RAW)

    monkeypatch.setattr(contract_job, "read_raw", read)
    out = "out" if case.rows else f"out.{RUN}"
    calm = [f"{name}{ending}" for name in ("orders", "out") for ending in REFERENCES]
    windows = [Window(topic, 0, 0, 9, 9, 9) for topic in (f"orders.{RUN}", out, *calm)]
    views = main(spark, KafkaSource("", "token", {}, RUN), windows, contract_of(case, tmp_path))
    compare(case, views)
    others = observed(case, tmp_path)
    if not case.error:
        assert views[0].meta.statements == others[0].meta.statements
    assert all(np.array_equal(a.origins, b.origins) for a, b in zip(views, others, strict=True))
