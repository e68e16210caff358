"""A transactional client of the harness whose calls a test makes one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.clients.client import CannotGoOnError, Deadline
from harness.clients.client_spec import Discipline, TransactionalSpec
from harness.clients.producer_lifecycle import BrokenTransactionError
from harness.clients.progress import ClientProgress
from harness.clients.transactor import Ended, Transactor
from harness.cluster.cluster import Cluster
from harness.evidence.history import HistoryWriter
from tests.hazards.conftest import committed

DISCIPLINES: Final[tuple[Discipline, ...]] = ("naive", "reinit", "always")
RUN: Final = "hazard01"
LIFE_S: Final = 300.0
_numbers = itertools.count(1)


@dataclass
class Result:
    """What a case shows: the answer to the late request, what can be read, and the new producers."""

    answer: str
    values: list[bytes]
    position: int = 0
    error: str = ""
    new_producers: int = 0


class OwnClient:
    """A transactional client of the harness, with a topic of its own, whose name is its transactional id."""

    def __init__(
        self, cluster: Cluster, folder: Path, discipline: Discipline, listener: str = "TAPPED", **changes: Any
    ) -> None:
        self.cluster = cluster
        self.topic = name = f"own-{discipline}-{next(_numbers)}"
        cluster.create_topic(name, 2)
        spec = TransactionalSpec(
            run=RUN,
            client=name,
            bootstrap=cluster.bootstrap(listener),
            history=str(folder / f"{name}.jsonl"),
            seconds=LIFE_S,
            topic=name,
            partitions=2,
            transactional_id=name,
            end_discipline=discipline,
            **changes,
        )
        self._progress = ClientProgress()
        self._history = HistoryWriter(Path(spec.history), run=RUN, client=name, role="transactional")
        self.transactor = Transactor(spec, self._history, self._progress, Deadline(LIFE_S))
        self.transactor.settle()

    def begin(self, value: bytes) -> None:
        """Begin a transaction, and send a record, which is acknowledged."""
        self.transactor.begin()
        self.send(value)

    def send(self, value: bytes) -> None:
        """Send a record, and wait for its ack."""
        self.transactor.send(0, [value])
        self.transactor.flush()

    def commit(self) -> None:
        """Commit the transaction. The client must receive a clear answer."""
        assert self.transactor.commit() is Ended.COMMITTED

    def abort(self) -> None:
        """Abort the transaction. The client must receive a clear answer."""
        assert self.transactor.abort() is Ended.ABORTED

    def whole(self, value: bytes) -> None:
        """Commit a transaction with one record."""
        self.begin(value)
        self.commit()

    def result(self, answer: str = "", **more: Any) -> Result:
        """End the client, and return what can be read."""
        self.transactor.let_go()
        self._history.close()
        values = committed(self.cluster, self.topic)
        self.cluster.delete_topics([self.topic])
        return Result(answer, values, new_producers=self._progress.reinits, **more)


def error_of(call: Callable[[], None]) -> str:
    """Make a call of a client, and return the name of the error that ended it, or ""."""
    try:
        call()
    except (BrokenTransactionError, CannotGoOnError) as broken:
        return str(broken.error.name()) if broken.error else str(broken)
    return ""
