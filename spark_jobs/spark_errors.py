"""Errors with which a Spark job fails."""

from __future__ import annotations


def spark_failures() -> tuple[type[Exception], ...]:
    """Return the classes of exceptions with which a query of Spark fails."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def describe_cause(error: Exception) -> str:
    """Return the first cause of a failed job, such as the error of a task."""
    lines = str(error).splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1][:300] if causes else describe_failure(error)


def describe_failure(error: Exception) -> str:
    """Return the first line of an error of Spark, which contains the error class and the message."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:300]
