"""The skipped marker with one client library after the other: the coordinator skips it, whoever asks.

Every library of the scenario has a partition with one replica to itself, and all write to one that goes on
living. Of each pair of producers the first is freed by an operator, the second by its own next transaction.
Kafka's Java client speaks transaction version 2 where the cluster does; the others do not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from harness.base.errors import UsageError
from harness.base.waits import wait_until
from harness.clients.scripted import java_client
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.clients.scripted.scripted_client import RECORDS, Scripted
from harness.cluster.layout import BROKER_IDS
from harness.evidence.step_report import WalkthroughStep
from harness.faults.node_faults import Kill
from harness.kafka import features
from harness.kafka.hanging_transactions import BlockingTransaction, find_hanging, write_marker
from harness.tap.coordinator_entries import CoordinatorEntry, decisions, markers
from harness.tap.frame_lines import Frame
from harness.walkthroughs.leaderless_partition import surviving_client, wait_leaderless
from harness.walkthroughs.open_transaction_reader import OpenTransactionReader
from harness.walkthroughs.stage import Stage

TITLES: Final = (
    "One replica: its broker is killed, then transactions of each client commit",
    "The broker is back, and an operator finds them",
    "The marker that was decided frees a partition",
    "The next transaction of the same producer decides the one that was left open",
)
LIVES: Final = 0
DIES: Final = 3
PLACEMENT: Final[Sequence[Sequence[int]]] = ((1,), (DIES,), (DIES,), (DIES,))
DRAWN: Final = ("freed-java", "freed-kafka-python")
TIMEOUT_MS: Final = 60_000
"""Longer than it takes to open every transaction and to lose a broker: none may be timed out meanwhile."""


def steps(stage: Stage) -> Iterator[WalkthroughStep]:
    """Carry out the four steps."""
    if not 0 < len(stage.libraries) < len(PLACEMENT):
        raise UsageError(
            f"{len(stage.libraries)} client libraries", f"flow.libraries has one to {len(PLACEMENT) - 1}"
        )
    return _Flow(stage).steps()


@dataclass
class _One:
    """A producer, and what became of the commit that it asked for without a leader."""

    client: Scripted
    library: str
    lost: int
    """The partition that it writes to and that has no leader at the end."""
    refused: str = ""
    producer_id: int = -1


class _Flow:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cluster = stage.cluster
        self.since = time.time_ns()
        self.freed: list[_One] = []
        self.again: list[_One] = []
        self.readers = 0

    def steps(self) -> Iterator[WalkthroughStep]:
        made = WalkthroughStep.numbered(TITLES)
        with ExitStack() as closing:
            if java_client.NAME in self.stage.libraries:
                closing.enter_context(java_client.running())
            for number in range(1, self.stage.tries + 1):
                for lost, library in enumerate(self.stage.libraries, 1):
                    for name, group in (("freed", self.freed), ("again", self.again)):
                        group.append(self._opened(closing, f"{name}-{library}-{number}", library, lost))
            for one in self.all:  # what is slow is over: these must stay open until the broker is missed
                one.client.begin()
                one.client.send(0, "commit")
                one.client.send(1, "commit")
            yield self._skipped(made[0])
            yield self._found(made[1])
            yield self._freed(made[2])
            yield self._next_one(made[3])

    @property
    def all(self) -> list[_One]:
        return self.freed + self.again

    def _opened(self, closing: ExitStack, name: str, library: str, lost: int) -> _One:
        """A producer whose first transaction has ended in order, so that the partition has seen a marker."""
        client = surviving_client(
            self.stage, name, len(self.all) + 1, [DIES], (lost, LIVES), library=library, timeout_ms=TIMEOUT_MS
        )
        closing.callback(client.close)
        client.init()
        client.begin()
        client.send(0, "commit")
        client.end("commit")
        return _One(client, library, lost)

    def _by_library(self, some: Sequence[_One]) -> Iterator[tuple[str, list[_One]]]:
        for library in self.stage.libraries:
            yield library, [one for one in some if one.library == library]

    def _skipped(self, step: WalkthroughStep) -> WalkthroughStep:
        with self.stage.inject(Kill(), f"kafka-{DIES}"):
            survivors = [broker for broker in BROKER_IDS if broker != DIES]
            for lost in range(1, len(self.stage.libraries) + 1):
                wait_leaderless(self.cluster, (self.stage.topic, lost), survivors)
            for one in self.all:
                try:
                    one.client.end("commit")
                except RefusedCallError as refused:
                    one.refused = str(refused)
                self._complete(one)
        levels = {
            b: features.levels(self.cluster.admin, b).get(features.TRANSACTION_VERSION, 0) for b in BROKER_IDS
        }
        versions = self._end_versions()
        step.show(levels=levels, versions=versions)
        found = list(markers(self.cluster, self.stage.topic, self.since))
        ends = self.cluster.end_offsets(self.stage.topic)
        for library, mine in self._by_library(self.all):
            said = [one.refused for one in mine if one.refused]
            step.prove(
                "the client is told that its commit is done",
                f"{library}: {len(mine) - len(said)} of {len(mine)}"
                + (f"; refused: {', '.join(sorted(set(said)))}" if said else "")
                + f"; EndTxn version {versions[library]}, transaction version {sorted(set(levels.values()))}",
                not said,
            )
            written = [self._written(one, found) for one in mine]
            step.prove(
                "the marker is written where there was a leader, and skipped where there was none",
                f"{library}: {sum(w == (1, 1) for w in written)} of {len(mine)}",
                set(written) == {(1, 1)},
            )
            end = ends[mine[0].lost]
            step.prove(
                "the last stable offset stays behind",
                f"{library}: it is {end.last_stable}, the high watermark {end.high_watermark}",
                end.last_stable < end.high_watermark,
            )
        return step

    def _complete(self, one: _One) -> None:
        """Wait until the coordinator is done with both transactions."""

        def done() -> bool:
            noted = [
                (s.what, s.producer_id)
                for s in decisions(self.cluster, one.client.transactional_id, self.since)
            ]
            one.producer_id = noted[-1][1]
            return [what for what, _ in groupby(what for what, _ in noted)].count("CompleteCommit") == 2

        wait_until(done, 30, f"the coordinator to be done with {one.client.name}")

    def _written(self, one: _One, found: Sequence[CoordinatorEntry]) -> tuple[int, int]:
        """Its commit markers where there was a leader, and where there was none, an earlier one included."""
        mine = [m for m in found if m.producer_id == one.producer_id and m.what == "commit"]
        places = [m.partition for m in mine]
        return places.count(LIVES), places.count(one.lost)

    def _end_versions(self) -> dict[str, list[int]]:
        """Which versions of EndTxn each library has sent."""
        seen = [
            (x.client_id, x.version)
            for x in self.stage.frames()
            if isinstance(x, Frame) and x.api == "EndTxn" and x.side == "request"
        ]
        return {
            library: sorted({v for name, v in seen if name in {one.client.name for one in mine}})
            for library, mine in self._by_library(self.all)
        }

    def _hanging(self) -> dict[str, BlockingTransaction]:
        found = find_hanging(self.cluster.admin, [self.stage.topic])
        return {one.last.transactional_id: one for one in found if one.last}

    def _found(self, step: WalkthroughStep) -> WalkthroughStep:
        self.seen = self._hanging()
        for library, mine in self._by_library(self.all):
            held = [self.seen.get(one.client.transactional_id) for one in mine]
            good = [h for h in held if h and h.last and h.last.state == "CompleteCommit"]
            first = good[0] if good else None
            step.prove(
                "the leader has it open (DescribeProducers), the coordinator has decided on it and is done "
                "(DescribeTransactions)",
                f"{library}: {len(good)} of {len(mine)}"
                + (
                    f"; epoch {first.open.epoch} of the partition, {first.last.epoch} of the coordinator"
                    if first and first.last
                    else ""
                ),
                len(good) == len(mine),
            )
        step.show(hanging=[[*h.open, *(h.last or ())[:5]] for h in self.seen.values()])
        return step

    def _freed(self, step: WalkthroughStep) -> WalkthroughStep:
        for library, mine in self._by_library(self.freed):
            answers = []
            for one in mine:
                open_ = self.seen[one.client.transactional_id].open
                answers.append(
                    write_marker(
                        self.cluster.admin,
                        DIES,
                        open_,
                        commit=True,
                        coordinator_epoch=open_.coordinator_epoch,
                    )
                )
            left = self._hanging().keys() & {one.client.transactional_id for one in mine}
            step.prove(
                "a commit marker with the epochs that DescribeProducers says ends it there",
                f"{library}: {len(mine) - len(left)} of {len(mine)}; {', '.join(sorted(set(answers)))}",
                not left,
            )
        return step

    def _next_one(self, step: WalkthroughStep) -> WalkthroughStep:
        for library, mine in self._by_library(self.again):
            said = self._abort(mine, lane=1)
            held = [self._hanging().get(one.client.transactional_id) for one in mine]
            told = [h.last.state for h in held if h and h.last]
            step.prove(
                "after the producer's next transaction elsewhere DescribeTransactions tells of that one",
                f"{library}: {told.count('CompleteAbort')} of {len(mine)}",
                told == ["CompleteAbort"] * len(mine) and not said,
            )
            said += self._abort(mine, lane=0)
            left = self._hanging().keys() & {one.client.transactional_id for one in mine}
            seen = [self._read(one) for one in mine]
            step.prove(
                "an abort of the next transaction aborts the acknowledged one, too",
                f"{library}: {seen.count(RECORDS)} of {len(mine)}"
                + (f"; refused: {', '.join(sorted(set(said)))}" if said else "")
                + (f"; still open: {len(left)}" if left else ""),
                seen == [RECORDS] * len(mine) and not said and not left,
            )
        for library, mine in self._by_library(self.freed):
            seen = [self._read(one) for one in mine]
            step.prove(
                "what was freed by the marker that was decided can be read",
                f"{library}: {seen.count(2 * RECORDS)} of {len(mine)}",
                seen == [2 * RECORDS] * len(mine),
            )
        return step

    def _abort(self, some: Sequence[_One], lane: int) -> list[str]:
        """One more transaction of each, on one of its partitions, that is aborted; what was refused."""
        said = []
        for one in some:
            try:
                one.client.begin()
                one.client.send(lane, "abort")
                one.client.end("abort")
                self._complete_abort(one)
            except RefusedCallError as refused:
                said.append(str(refused))
        return said

    def _complete_abort(self, one: _One) -> None:
        """Wait until the coordinator is done with the abort."""
        ident = one.client.transactional_id
        wait_until(
            lambda: list(decisions(self.cluster, ident, self.since))[-1].what == "CompleteAbort",
            30,
            f"the coordinator to be done with {one.client.name}",
        )

    def _read(self, one: _One) -> int:
        """How many of its records a read_committed reader is given of the partition that had no leader."""
        self.readers += 1
        place = (self.stage.topic, one.lost)
        reader = OpenTransactionReader(self.stage, f"reader-{self.readers}", place, one.client.number)
        seen = reader.look()
        reader.close()
        return seen
