"""`python -m harness.clients SPEC.json`: run one client until its time is over, SIGTERM, or a fatal error."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException

from harness.base.errors import HarnessError
from harness.clients import bug_log, planted_bugs
from harness.clients.client import CannotGoOnError, ClientLog, Deadline, error_of, kafka_error
from harness.clients.client_spec import (
    ClientSpec,
    IdempotentSpec,
    PipelineSpec,
    SeederSpec,
    TransactionalSpec,
    load_spec,
)
from harness.clients.idempotent import IdempotentClient
from harness.clients.pipeline import PipelineClient
from harness.clients.progress import ClientProgress, ProgressFile
from harness.clients.reader import ReaderClient
from harness.clients.seeder import SeederClient
from harness.clients.transactional import TransactionalClient
from harness.evidence.history import Error, HistoryWriter


class Client(Protocol):
    """Interface that every kind of client implements."""

    def run(self) -> None:
        """Work until asked to stop; raise CannotGoOnError on a fatal error."""
        ...


def client_of(spec: ClientSpec, history: HistoryWriter, progress: ClientProgress, stop: Deadline) -> Client:
    """Create the client that a spec describes."""
    if isinstance(spec, IdempotentSpec):
        return IdempotentClient(spec, history, progress, stop)
    if isinstance(spec, TransactionalSpec):
        return TransactionalClient(spec, history, progress, stop)
    if isinstance(spec, SeederSpec):
        return SeederClient(spec, history, progress, stop)
    if isinstance(spec, PipelineSpec):
        return PipelineClient(spec, history, progress, stop)
    return ReaderClient(spec, history, progress, stop)


def main(spec_file: str) -> int:
    """Run the client that the file describes; return its exit code.

    The code is 0 if the client ran until its time was over or it was asked to stop. It is 1 if it gave up.
    """
    path = Path(spec_file)
    spec = load_spec(path)
    if spec.planted_bug:
        planted_bugs.plant(spec.planted_bug, bug_log.BugLog(path.parent / bug_log.FILE))
    progress = ClientProgress(kind=spec.kind, client=spec.client)
    stop = Deadline(spec.seconds)
    signal.signal(signal.SIGTERM, stop.request_stop)
    with (
        HistoryWriter(
            Path(spec.history), run=spec.run, client=spec.client, role=spec.kind, lateness=True
        ) as history,
        ProgressFile(path.parent / "progress.json", progress),
    ):
        try:
            progress.state = "running"
            client_of(spec, history, progress, stop).run()
        except KafkaException as error:
            # The client library raises this exception, for example, when it rejects a setting.
            refused = CannotGoOnError("the client library refused to start", kafka_error(error))
            return _give_up(spec, history, progress, refused)
        except (CannotGoOnError, HarnessError) as error:
            return _give_up(spec, history, progress, error)
        progress.state = "done"
        return 0


def _give_up(spec: ClientSpec, history: HistoryWriter, progress: ClientProgress, error: Exception) -> int:
    inside = error.error if isinstance(error, CannotGoOnError) else None
    recorded = error_of(inside) if inside is not None else Error(code=0, name=type(error).__name__)
    op = history.invoke("give_up", producer=spec.number)
    recorded.message = f"{error}: {recorded.message}" if recorded.message else str(error)
    history.info(op, recorded)
    history.close(f"gave up: {error}")
    ClientLog(progress).write(f"{spec.client} gives up: {recorded.name}: {recorded.message}")
    progress.state = "gave up"
    return 1


if __name__ == "__main__":
    exit_code = main(sys.argv[1])
    # While the interpreter ends, it restores the default action of SIGTERM. A second request to stop would
    # then end a client that has finished with 143, as if it had been killed.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(exit_code)
