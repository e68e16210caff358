"""Classes of Kafka's Java client: whether a version has them, and which names they contain."""

from __future__ import annotations

from zipfile import ZipFile

from harness.provision.jars import ensure_client
from harness.provision.kafka_versions import DEFAULT_KAFKA


def has_class(name: str, kafka: str = DEFAULT_KAFKA) -> bool:
    """Return whether the client of a version of Kafka has a class, such as `org/apache/kafka/common/Uuid`."""
    with _clients(kafka) as jar:
        return f"{name}.class" in jar.namelist()


def mentions(name: str, word: str, kafka: str = DEFAULT_KAFKA) -> bool:
    """Return whether a class of the client contains a name of a method or field."""
    with _clients(kafka) as jar:
        return word.encode() in jar.read(f"{name}.class")


def _clients(kafka: str) -> ZipFile:
    jars = ensure_client(lambda _: None, kafka)
    return ZipFile(next(jar for jar in jars if jar.name == f"kafka-clients-{kafka}.jar"))
