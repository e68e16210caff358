"""One pass over the matrix: every case of every library on one cluster, some attempts each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.base.errors import HarnessError, MachineError, describe_error
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.cluster.cluster import Cluster
from harness.kafka import features
from harness.walkthroughs.matrix.bench import Bench
from harness.walkthroughs.matrix.cases import NOT_SHOWN, Case, Result
from harness.walkthroughs.matrix.driver import UnsupportedCallError
from harness.walkthroughs.matrix.libraries import Launch, Library

Report = Callable[[str], None]
Cell = tuple[str, str, str, int, str]
"""Library, its version, version of Kafka, transaction version, and case."""
_NAMED: Final = 160


class Attempt(msgspec.Struct, kw_only=True, frozen=True):
    """One attempt of one case: a line of the file of results."""

    library: str
    version: str
    kafka: str
    transaction_version: int
    case: str
    number: int
    mark: str
    observed: str
    requests: dict[str, int]
    """The highest version of each transactional request that the library sent."""
    backend: str
    day: str

    @property
    def cell(self) -> Cell:
        """The cell of the table that the attempt belongs to."""
        return self.library, self.version, self.kafka, self.transaction_version, self.case


@dataclass(frozen=True)
class Sweep:
    """Runner of the cases on one cluster.

    Drivers write their errors and the wire tap its frames below `folder`. Attempts in `done` are not made
    again; each of them is a cell and the number of the attempt.
    """

    cluster: Cluster
    tries: int
    folder: Path
    report: Report
    done: Collection[tuple[Cell, int]] = frozenset()

    def attempts(self, libraries: Sequence[Library], cases: Sequence[Case]) -> Iterator[Attempt]:
        """Carry out every case with every library, and yield the result of each attempt."""
        place = _place(self.cluster)
        kafka, transaction_version = place["kafka"], place["transaction_version"]
        for library in libraries:
            wanted = [
                (case, number)
                for case in cases
                for number in range(1, self.tries + 1)
                if ((library.name, library.version, kafka, transaction_version, case.name), number)
                not in self.done
            ]
            if not wanted:
                continue
            launch: Launch | MachineError
            try:
                launch = library.prepare(self.report)
            except MachineError as error:
                launch = error
            for case, number in wanted:
                name = f"{case.name.replace(' ', '-')}-{number}"
                level = f"kafka-{kafka}-{transaction_version}"
                folder = self.folder / level / library.key.replace(" ", "-") / name
                result, requests = _attempt(self.cluster, launch, case, folder)
                yield Attempt(
                    library=library.name,
                    version=library.version,
                    case=case.name,
                    number=number,
                    mark=result.mark,
                    observed=result.observed,
                    requests=requests,
                    **place,
                )


def _place(cluster: Cluster) -> dict[str, Any]:
    level = features.levels(cluster.admin).get(features.TRANSACTION_VERSION, 0)
    return {
        "kafka": cluster.record.kafka,
        "transaction_version": level,
        "backend": cluster.record.backend,
        "day": time.strftime("%Y-%m-%d"),
    }


def _attempt(
    cluster: Cluster, launch: Launch | MachineError, case: Case, folder: Path
) -> tuple[Result, dict[str, int]]:
    if isinstance(launch, MachineError):
        return Result(NOT_SHOWN, launch.message[:_NAMED]), {}
    try:
        bench = Bench(cluster, launch, folder)
    except HarnessError as error:
        return Result(NOT_SHOWN, describe_error(error)[:_NAMED]), {}
    try:
        try:
            result = case.attempt(bench)
        except UnsupportedCallError as unsupported:
            result = Result("not possible", str(unsupported))
        except RefusedCallError as refused:
            result = Result("stopped", str(refused)[:_NAMED])
        except (HarnessError, OSError, EOFError) as error:
            result = Result(NOT_SHOWN, describe_error(error)[:_NAMED])
        return result, bench.versions()
    finally:
        bench.close()
