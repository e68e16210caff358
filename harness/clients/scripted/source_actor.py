"""A member of a group that reads when it is told to, and knows the way back after an abort."""

from __future__ import annotations

from pathlib import Path

from harness.base.closing import Closing
from harness.base.waits import wait_until
from harness.clients.client import Deadline
from harness.clients.client_settings import Protocol
from harness.clients.client_spec import PipelineSpec
from harness.clients.group_consumer import GroupConsumer
from harness.clients.poll_decoding import Given
from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryWriter, Position

LIFE_S = 600.0
TAKE_LIMIT_S = 30.0


class SourceActor(Closing):
    """The consuming half of an application; its outputs are a transactional producer's."""

    def __init__(
        self,
        *,
        run: str,
        name: str,
        number: int,
        bootstrap: str,
        source: str,
        group: str,
        histories: Path,
        protocol: Protocol = "classic",
    ) -> None:
        spec = PipelineSpec(
            run=run,
            client=name,
            number=number,
            bootstrap=bootstrap,
            seconds=LIFE_S,
            history=str(histories / f"{name}.jsonl"),
            source=source,
            group=group,
            sink="",
            partitions=1,
            protocol=protocol,
        )
        self.name = name
        self.group = group
        self._history = HistoryWriter(Path(spec.history), run=run, client=name, role=spec.kind)
        self._source = GroupConsumer(
            spec, self._history, ClientProgress(kind=spec.kind, client=name), Deadline(LIFE_S)
        )
        self._source.open()

    def take(self, count: int) -> list[Given]:
        """Read so many records, in the order of reading."""
        found: list[Given] = []

        def enough() -> bool:
            found.extend(self._source.take(count - len(found), 0.5))
            return len(found) == count

        wait_until(enough, TAKE_LIMIT_S, f"{count} records for {self.name}")
        return found

    @property
    def metadata(self) -> object:
        """The membership under which the last records were taken."""
        return self._source.metadata

    def rewind(self) -> None:
        """Go back to the group's committed positions."""
        self._source.rewind()

    def close(self) -> None:
        """Leave the group and end the history."""
        try:
            self._source.close()
        finally:
            self._history.close()


def positions_behind(records: list[Given]) -> list[Position]:
    """The position behind the last of some records, for each partition."""
    last = {(record.topic, record.partition): record.offset + 1 for record in records}
    return [(topic, partition, offset) for (topic, partition), offset in sorted(last.items())]
