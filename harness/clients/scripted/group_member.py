"""A consumer of a group that reads a given number of records at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.base.waits import wait_until
from harness.clients.client import Deadline
from harness.clients.client_spec import PipelineSpec
from harness.clients.group_consumer import GroupConsumer
from harness.clients.poll_decoding import Given
from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryWriter, Position

TAKE_LIMIT_S: Final = 30.0


class GroupMember:
    """The consuming half of an application. A transactional producer writes the application's outputs."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.name = spec.client
        self.group = spec.group
        self._history = HistoryWriter(Path(spec.history), run=spec.run, client=spec.client, role=spec.kind)
        progress = ClientProgress(kind=spec.kind, client=spec.client)
        self._source = GroupConsumer(spec, self._history, progress, Deadline(spec.seconds))
        self._source.open()

    def take(self, count: int) -> list[Given]:
        """Return the next `count` records in the order of reading."""
        records: list[Given] = []

        def enough() -> bool:
            records.extend(self._source.take(count - len(records), 0.5))
            return len(records) == count

        wait_until(enough, TAKE_LIMIT_S, f"{count} records for {self.name}")
        return records

    @property
    def metadata(self) -> object:
        """Group metadata of the membership with which the last `take` read its records."""
        return self._source.metadata

    def rewind(self) -> None:
        """Seek to the group's committed offsets."""
        self._source.rewind()

    def close(self) -> None:
        """Leave the group and close the history."""
        try:
            self._source.close()
        finally:
            self._history.close()


def next_positions(records: list[Given]) -> list[Position]:
    """Return the positions to commit: for each partition, one more than the offset of its last record."""
    last = {(record.topic, record.partition): record.offset + 1 for record in records}
    return [(topic, partition, offset) for (topic, partition), offset in sorted(last.items())]
