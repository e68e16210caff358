"""One instance of the sink: PostgreSQL with the catalog, or a worker of Kafka Connect.

    python sink.py                    the first instance is the database, every other one is a worker
    python sink.py records SHARED     print the table as JSON lines, after PostgreSQL has ended
    python sink.py files SHARED       print the data files that each of its snapshots added
    python sink.py snapshots SHARED   print its snapshots

The sink commits the positions of its inputs before their files are in the table. So SIGHUP, which does not
end PostgreSQL and the worker itself, ends an instance only after the coordinator of the sink has committed
all that its control topic contained then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "debezium"))

from stack import Database, await_port, fail, java

ENV = os.environ
LOCATION = "select metadata_location from iceberg_tables where table_name = 'orders'"
LOG_COMMITS = "-Dorg.slf4j.simpleLogger.log.org.apache.iceberg.connect.channel=info"
SETTLE_LIMIT_S = 90.0


def create_control_topic() -> None:
    """Create the control topic of the sink, with one partition, unless it exists."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": ENV["BOOTSTRAP"]})
    (created,) = admin.create_topics([NewTopic(ENV["CONTROL"], 1, 3)]).values()
    try:
        created.result(60)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise


def settle() -> bool:
    """Wait until the coordinator of the sink has committed what the control topic contains now.

    The coordinator commits its position in the control topic after the table. Return whether it did in time.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    place = TopicPartition(ENV["CONTROL"], 0)
    settings = {"bootstrap.servers": ENV["BOOTSTRAP"], "group.id": f"{ENV['GROUP']}-coord"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    deadline, end, position = time.monotonic() + SETTLE_LIMIT_S, None, None
    try:
        while time.monotonic() < deadline:
            try:
                end = consumer.get_watermark_offsets(place, 10)[1] if end is None else end
                position = consumer.committed([place], 10)[0].offset
            except KafkaException as error:
                print(f"no position of the coordinator: {error}", flush=True)
            if end is not None and position is not None and position >= end:
                return True
            time.sleep(0.2)
    finally:
        consumer.close()
    print(f"the coordinator is at {position} of {end} after {SETTLE_LIMIT_S:g} s", flush=True)
    return False


def run_database(
    shared: Path, settled: Callable[[], bool], helper: Callable[[str], list[str]] | None = None
) -> int:
    """Run PostgreSQL until it ends, or until this program is asked to stop and `settled` has returned.

    A helper is a program that runs beside it. `helper` returns its command for the port of PostgreSQL.
    """
    stop_asked: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: stop_asked.append(number))
    port = ENV["PORT"]
    database = Database(shared)
    database.create()
    server = database.start(port)
    create_control_topic()
    (shared / "warehouse").mkdir(exist_ok=True)
    (shared / "packages").write_text(ENV["PACKAGES"])
    (shared / "port").write_text(port)
    beside = subprocess.Popen(helper(port)) if helper else None
    print("the catalog exists", flush=True)
    while not stop_asked:
        if server.poll() is not None:
            fail(f"PostgreSQL ended with exit code {server.returncode}; see the lines above")
        if beside and beside.poll() is not None and not stop_asked:
            server.kill()
            fail(f"the program beside PostgreSQL ended with exit code {beside.returncode}")
        time.sleep(0.2)
    done = settled()
    (shared / "settled").touch()
    server.send_signal(signal.SIGINT)
    server.wait()
    return 0 if done else 1


def run_worker(shared: Path) -> NoReturn:
    """Become a worker of Kafka Connect."""
    port = await_port(shared)
    connector = Path(ENV["CONNECTOR"])
    text = connector.read_text().replace("DATABASE_PORT", port)
    connector.write_text(text)
    launcher = str(Path(__file__).resolve().parents[1] / "connect" / "worker.py")
    program, *options = java()
    worker = [
        program,
        LOG_COMMITS,
        *options,
        "org.apache.kafka.connect.cli.ConnectDistributed",
        ENV["WORKER"],
    ]
    command = [sys.executable, launcher, str(connector), ENV["PORT"], "--", *worker]
    os.execve(sys.executable, command, {**ENV, "STOP_WHEN": str(shared / "settled")})


def read_table(shared: Path) -> Any:
    """Return the table as PyIceberg reads it, or None if there is none."""
    sys.path.insert(0, (shared / "packages").read_text())
    from pyiceberg.table import StaticTable

    location = Database(shared).rows(LOCATION).strip()
    return StaticTable.from_metadata(location) if location else None


def records(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the records of the table."""
    yield from table.scan().to_arrow().to_pylist()


def files(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the data files that each snapshot added."""
    from pyiceberg.manifest import ManifestEntryStatus

    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io):
                if (entry.status, entry.snapshot_id) == (ManifestEntryStatus.ADDED, snapshot.snapshot_id):
                    path = entry.data_file.file_path
                    yield {"file": path, "snapshot": str(snapshot.snapshot_id)}


def snapshots(table: Any) -> Iterator[dict[str, Any]]:
    """Yield each snapshot with its offset in the control topic, and the highest one of those before it."""
    highest = -1
    for snapshot in sorted(table.metadata.snapshots, key=lambda each: each.sequence_number):
        texts = [
            text
            for name, text in snapshot.summary.additional_properties.items()
            if name.startswith("kafka.connect.offsets.")
        ]
        (offset,) = json.loads(texts[0]).values() if texts else (None,)
        yield {"snapshot": str(snapshot.snapshot_id), "control_offset": offset, "before": highest}
        highest = max(highest, offset if offset is not None else -1)


READERS = {"records": records, "files": files, "snapshots": snapshots}


def main() -> int:
    if sys.argv[1:]:
        table = read_table(Path(sys.argv[2]))
        for row in READERS[sys.argv[1]](table) if table else ():
            print(json.dumps(row))
        return 0
    shared = Path(ENV["SHARED"])
    first = ENV["EOS_INSTANCE"].endswith("-1")
    return run_database(shared, settle) if first else run_worker(shared)


if __name__ == "__main__":
    sys.exit(main())
