"""One Spark session for all tests of a process, because starting a session takes longer than most tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from harness.witness.spark.spark_session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session("tests", log=lambda line: print(line, file=sys.stderr), quick_start=True)
    yield session
    session.stop()
