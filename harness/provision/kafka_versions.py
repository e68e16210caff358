"""Versions of Kafka that the harness can run, and what each of them supports.

A version is known if it has a lock file, which pins its jars: `kafka/4.1.2.lock` in the package data. The
command `python -m tools.lock_kafka VERSION` writes it. The table `SINCE` names what older versions lack. The
harness leaves out what a version lacks, and refuses a scenario that needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

from harness.base.errors import CapabilityError, UsageError
from harness.base.texts import shorten
from harness.provision.paths import resource

DEFAULT_KAFKA: Final = "4.3.1"
"""The version of a cluster if no other one is requested."""
NEWEST_CLIENT: Final = "4.4.0"
"""The newest version of Kafka's Java client, which has no broker here. `jars.lock` pins it."""

_VERSION = re.compile(r"\d{1,4}\.\d{1,4}\.\d{1,4}")


class KafkaFeature(StrEnum):
    """Something that only newer versions of Kafka support."""

    TRANSACTION_VERSION = "transaction.version"  # transaction version 2 of KIP-890: an epoch per transaction
    CONSUMER_PROTOCOL = "group protocol consumer"  # KIP-848
    SHARE_COORDINATOR = "share groups"  # KIP-932, and its settings share.coordinator.*


SINCE: Final[dict[KafkaFeature, tuple[int, ...]]] = {
    KafkaFeature.TRANSACTION_VERSION: (4, 0),
    KafkaFeature.CONSUMER_PROTOCOL: (4, 0),
    KafkaFeature.SHARE_COORDINATOR: (4, 0),
}
"""The first version of Kafka with each feature in production quality."""


def lock_folder() -> Path:
    """Return the folder of the lock files, one for each version."""
    return resource("kafka")


@cache
def known_versions() -> tuple[str, ...]:
    """Return the versions that have a lock file, the newest first."""
    names = (file.name.removesuffix(".lock") for file in lock_folder().glob("*.lock"))
    return tuple(sorted(names, key=numbers, reverse=True))


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, in order to compare it. Raise UsageError if it is not a version."""
    if not _VERSION.fullmatch(version):
        hint = f"versions are {', '.join(known_versions())}" if version else "write one such as 4.3.1"
        raise UsageError(f"{shorten(version)!r} is not a version of Kafka", hint)
    return tuple(map(int, version.split(".")))


def check_version(version: str) -> str:
    """Return a version if the harness has its lock file. Otherwise raise UsageError, which lists them all."""
    known = known_versions()
    older = numbers(version) < numbers(known[-1])
    if version not in known:
        adding = f"in a checkout, `python -m tools.lock_kafka {version}` adds it"
        more = f"older ones than {known[-1]} were never tried" if older else adding
        raise UsageError(
            f"Kafka {version} is not among the versions that this harness can run",
            f"versions are {', '.join(known)}; {more}",
        )
    return version


def supports(version: str, feature: KafkaFeature) -> bool:
    """Return whether a version of Kafka has a feature."""
    return numbers(version) >= SINCE[feature]


def missing_features(version: str, needed: Iterable[KafkaFeature]) -> list[KafkaFeature]:
    """Return the needed features that a version of Kafka lacks."""
    return sorted(feature for feature in needed if not supports(version, feature))


def require_features(version: str, needed: Iterable[KafkaFeature], what: str) -> None:
    """Raise CapabilityError, which names `what` needs the features, if a version lacks one of them."""
    if missing := missing_features(version, needed):
        first = ".".join(map(str, max(SINCE[feature] for feature in missing)))
        raise CapabilityError(
            f"{what} needs {' and '.join(missing)}, which Kafka {version} does not have",
            f"use Kafka {first} or newer, such as --kafka {DEFAULT_KAFKA}",
        )
