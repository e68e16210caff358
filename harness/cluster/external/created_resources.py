"""The record of the topics and groups that a run creates on an external cluster. It is kept in files.

The harness records each name before it creates the topic or group. It removes the name from the record after
it has deleted the topic or group, or when it leaves them to the user.
"""

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
"""Time limit in seconds for the deletion of a group.

If a member was killed, the group can be deleted only after the member's session timeout.
"""
TOPICS: Final = "created"
GROUPS: Final = "groups"
NOTES: Final = (TOPICS, GROUPS)
"""Names of the two record files in the state directory.

A record file exists only while the external cluster may still have topics or groups of a run.
"""
_NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NON_EMPTY_GROUP,
)


class Made:
    """The record of the topics and groups that a run creates.

    The record consists of two files in the state directory, with one name per line. A new run is refused if
    the record contains a group, or a topic that still exists. The recorded topics and groups therefore belong
    to one run only: the current run, or an earlier run that was killed before it could delete them.
    """

    def __init__(self, folder: Path, cluster: Topics) -> None:
        self._cluster = cluster
        self._topics = folder / TOPICS
        self._groups = folder / GROUPS

    def note_topic(self, name: str) -> None:
        """Note the name of a topic that is about to be created."""
        _note(self._topics, [name])

    def note_groups(self, names: Iterable[str]) -> None:
        """Note the names of consumer groups that clients are about to join."""
        _note(self._groups, names)

    def topics(self) -> list[str]:
        """Return the recorded topics that exist on the cluster."""
        names = _noted(self._topics)
        there = {p.topic for p in self._cluster.admin.metadata(None).partitions} if names else set()
        return [name for name in names if name in there]

    def groups(self) -> list[str]:
        """Return the recorded groups, whether they exist or not."""
        return _noted(self._groups)

    def keep(self) -> None:
        """Delete the two record files of a run, and leave its topics and groups on the cluster.

        The topics and groups then belong to the user: no later run or heal deletes them.
        """
        self._topics.unlink(missing_ok=True)
        self._groups.unlink(missing_ok=True)

    def delete_topics(self) -> list[str]:
        """Delete the recorded topics that exist on the cluster. Return their names.

        Wait until the topics no longer exist, then delete the record file of the topics.
        """
        names = self.topics()
        if names:
            self._cluster.delete_topics(names)
            wait_until(lambda: not self.topics(), TOPIC_S, f"{', '.join(names)} to be deleted")
        self._topics.unlink(missing_ok=True)
        return names

    def delete_groups(self) -> list[str]:
        """Delete each recorded group. Return the names of the groups.

        A group can be deleted only when it has no members. The method waits up to GROUP_S seconds for this.
        """
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
            raise HarnessError(str(error), "--dry-run prints the required rights") from error
        return True


def _noted(path: Path) -> list[str]:
    return list(dict.fromkeys(path.read_text().splitlines())) if path.exists() else []


def _note(path: Path, names: Iterable[str]) -> None:
    with path.open("a") as file:
        file.writelines(f"{name}\n" for name in names)
