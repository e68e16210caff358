"""Class path, class-data archive and storage format for the nodes of the process back end.

Without a cache, each of the six nodes would have to make two files at each start. This module makes each of
the two files once and caches it:
- an archive of class data (CDS). A single node, which is both broker and controller, writes it in a training
  run, in which it serves a small workload. The archive halves the processor time that the six nodes need to
  start;
- the file bootstrap.checkpoint that `kafka-storage format` writes. It is the same for every node of a Kafka
  version.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.base import processes
from harness.base.errors import HarnessError
from harness.base.heartbeat import heartbeat
from harness.base.ports import free_ports
from harness.base.waits import wait_until
from harness.kafka.admin import random_cluster_id
from harness.kafka.connection import answers
from harness.kafka.training_workload import run_training_workload
from harness.provision.jars import class_path, ensure_jars
from harness.provision.java import find_java
from harness.provision.kafka_versions import DEFAULT_KAFKA
from harness.provision.paths import cache_dir, cache_lock, scratch_dir

_TRAINING_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=BROKER://127.0.0.1:{broker}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
group.initial.rebalance.delay.ms=0
log.dirs={data}
"""


@dataclass(frozen=True)
class KafkaRuntime:
    """Files that a node of the process back end needs in order to run.

    They are the Java launcher, the jars of the class path, the class-data archive and the file
    bootstrap.checkpoint of a formatted data directory.
    """

    java: Path
    class_path: str
    archive: Path
    checkpoint: Path

    def command(self, main: str, *arguments: str, options: list[str]) -> list[str]:
        """Return the command line that runs the Java class `main` with the class-data archive."""
        shared = [f"-XX:SharedArchiveFile={self.archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        return [
            str(self.java),
            *options,
            *shared,
            "-XX:-UsePerfData",
            "-Djava.awt.headless=true",
            *_LOG_OPTIONS,
            "-cp",
            self.class_path,
            main,
            *arguments,
        ]

    def format(self, data: Path, cluster_id: str, node_id: int) -> None:
        """Format the data directory of a node in the same way as `kafka-storage format`."""
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            "version=1",
            f"cluster.id={cluster_id}",
            f"node.id={node_id}",
            f"directory.id={random_cluster_id()}",
        ]
        (data / "meta.properties").write_text("\n".join(lines) + "\n")
        shutil.copy(self.checkpoint, data / "bootstrap.checkpoint")


_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)


def cached_runtime(kafka: str = DEFAULT_KAFKA) -> KafkaRuntime:
    """Return the runtime of a version of Kafka with the installed Java. Its files may not exist yet."""
    java = find_java()
    jar_path = os.pathsep.join(str(jar) for jar in class_path("kafka", kafka=kafka))
    # A class-data archive is valid only for one JVM and one class path. The cache key therefore depends on
    # both.
    key = hashlib.sha256(f"{java.executable.resolve()} {java.version} {jar_path}".encode()).hexdigest()[:16]
    folder = cache_dir() / f"kafka-runtime-{key}"
    return KafkaRuntime(java.executable, jar_path, folder / "classes.jsa", folder / "bootstrap.checkpoint")


def ensure_kafka(report: Callable[[str], None], kafka: str = DEFAULT_KAFKA) -> KafkaRuntime:
    """Return the runtime of a version of Kafka. If jars or cached files are missing, fetch or make them."""
    ensure_jars(report, "kafka", kafka=kafka)
    runtime = cached_runtime(kafka)
    folder = runtime.archive.parent
    if folder.exists():
        return runtime
    with cache_lock():
        if folder.exists():  # another command made the folder while this one waited for the lock
            return runtime
        # An earlier training run that was killed may have left its node. No other training run is active,
        # because this process holds the lock.
        processes.end_all(f"{cache_dir()}/train-")
        step = f"preparing class data and storage format of Kafka {kafka} (once, about 15 s)"
        with heartbeat(report, step), scratch_dir("train") as scratch:
            made = scratch / "made"
            made.mkdir()
            _train(runtime, scratch, made)
            made.rename(folder)
    return runtime


def _train(runtime: KafkaRuntime, scratch: Path, made: Path) -> None:
    """Format one training node and run it under a small workload.

    Write two files to the folder `made`: the node's class-data archive, and bootstrap.checkpoint, the result
    of formatting.
    """
    broker, controller = free_ports(2)
    data = scratch / "data"
    properties = scratch / "server.properties"
    properties.write_text(_TRAINING_PROPERTIES.format(broker=broker, controller=controller, data=data))
    base = [str(runtime.java), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    tail = [*_LOG_OPTIONS, "-cp", runtime.class_path]
    formatting = [
        *base,
        *tail,
        "kafka.tools.StorageTool",
        "format",
        "-t",
        random_cluster_id(),
        "-c",
        str(properties),
    ]
    done = subprocess.run(formatting, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise HarnessError(
            f"formatting a Kafka directory failed: {done.stdout[-500:]}{done.stderr[-500:]}",
            "run `eos doctor`, which checks the jars",
        )
    shutil.copy(data / "bootstrap.checkpoint", made)
    dump = f"-XX:ArchiveClassesAtExit={made / runtime.archive.name}"
    log = scratch / "log"
    with log.open("wb") as output:
        node = subprocess.Popen(
            [*base, dump, *tail, "kafka.Kafka", str(properties)],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until(lambda: answers("127.0.0.1", broker), 60, "the training node to answer", hint=f"see {log}")
        run_training_workload(broker)
        node.send_signal(signal.SIGTERM)
        node.wait(timeout=90)
    finally:
        node.kill()
        node.wait()
    if not (made / runtime.archive.name).exists():
        raise HarnessError(
            f"the training node wrote no class data: {log.read_text()[-500:]}", "run `eos doctor`"
        )
