"""What a run has made on a live cluster: noted before it is made, until it is deleted or left to the user."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harness.base.errors import HarnessError
from harness.base.waits import wait_until
from harness.cluster.topics import Topics
from harness.kafka.coordinators import delete_group
from harness.kafka.errors import ErrorCode, KafkaAnswerError

TOPIC_S: Final = 30.0
GROUP_S: Final = 60.0
"""A group has members until the session of the last one that was killed is over."""
TOPICS: Final = "created"
GROUPS: Final = "groups"
NOTES: Final = (TOPICS, GROUPS)
"""Files of the state directory: while one is there, something of ours is on somebody else's cluster."""
_NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NON_EMPTY_GROUP,
)


class Made:
    """Topics and groups, in two files of the state directory, a name in each line.

    One run at a time notes here, and none while something of an earlier one stands: what is noted is of the
    run that is under way, or of one that was killed.
    """

    def __init__(self, folder: Path, cluster: Topics) -> None:
        self._cluster = cluster
        self._topics = folder / TOPICS
        self._groups = folder / GROUPS

    def note_topic(self, name: str) -> None:
        """Note a topic that is about to be made."""
        _note(self._topics, [name])

    def note_groups(self, names: Iterable[str]) -> None:
        """Note groups that clients are about to join."""
        _note(self._groups, names)

    def topics(self) -> list[str]:
        """The topics that were noted and are there."""
        names = _noted(self._topics)
        there = {p.topic for p in self._cluster.admin.metadata(None).partitions} if names else set()
        return [name for name in names if name in there]

    def groups(self) -> list[str]:
        """The groups that were noted."""
        return _noted(self._groups)

    def keep(self) -> None:
        """Leave all of it to the user: no later run, and no heal, deletes it."""
        self._topics.unlink(missing_ok=True)
        self._groups.unlink(missing_ok=True)

    def delete_topics(self) -> list[str]:
        """Delete the topics, and nothing else."""
        names = self.topics()
        if names:
            self._cluster.delete_topics(names)
            wait_until(lambda: not self.topics(), TOPIC_S, f"{', '.join(names)} to be deleted")
        self._topics.unlink(missing_ok=True)
        return names

    def delete_groups(self) -> list[str]:
        """Delete the groups, each once nobody is in it."""
        names = self.groups()
        for name in names:
            self._delete_group(name)
        self._groups.unlink(missing_ok=True)
        return names

    def _delete_group(self, name: str) -> None:
        wait_until(lambda: self._forgotten(name), GROUP_S, f"group {name} to be deleted", every=1.0)

    def _forgotten(self, group: str) -> bool:
        try:
            delete_group(self._cluster.admin, group)
        except KafkaAnswerError as error:
            if error.code in _NOT_YET:
                raise
            raise HarnessError(str(error), "--dry-run prints the rights that it needs") from error
        return True


def _noted(path: Path) -> list[str]:
    return list(dict.fromkeys(path.read_text().splitlines())) if path.exists() else []


def _note(path: Path, names: Iterable[str]) -> None:
    with path.open("a") as file:
        file.writelines(f"{name}\n" for name in names)
