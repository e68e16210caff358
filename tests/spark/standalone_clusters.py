"""Standalone Spark clusters for tests of scale-out: plain processes, or the compose profile `spark`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harness.base.errors import HarnessError
from harness.base.waits import wait_until
from harness.evidence.observation import Observation, load
from harness.provision.compose import ComposeProject, write_env_file
from harness.provision.java import find_java
from harness.witness.spark.spark_process import OBSERVATION, Job, write_job

START_LIMIT_S: Final = 120.0
STOP_LIMIT_S: Final = 20.0
_HOST: Final = "127.0.0.1"


@contextmanager
def standalone(folder: Path, workers: int = 2, memory: str = "768m") -> Iterator[str]:
    """Run a master and workers with one core each; yield the master's address, and finally stop them."""
    import pyspark

    folder.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    port = _free_port()
    address = f"spark://{_HOST}:{port}"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(find_java().executable.resolve().parent.parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("ab") as out:
            command = [str(home / "bin" / "spark-class"), *arguments]
            running.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            )
        return log

    try:
        master = "org.apache.spark.deploy.master.Master"
        log = start("master", master, "--host", _HOST, "--port", str(port), "--webui-port", "0")
        wait_until(lambda: _accepts(port), START_LIMIT_S, "the Spark master to listen", hint=f"look at {log}")
        for number in range(workers):
            worker = "org.apache.spark.deploy.worker.Worker"
            sizes = ["--cores", "1", "--memory", memory, "--webui-port", "0", "--host", _HOST]
            start(f"worker-{number}", worker, *sizes, "--work-dir", str(folder / f"work-{number}"), address)
        wait_until(
            lambda: log.read_text().count("Registering worker") >= workers,
            START_LIMIT_S,
            f"{workers} Spark workers to register",
            hint=f"look at the logs in {folder}",
        )
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_LIMIT_S)


@contextmanager
def containers(name: str, report: Callable[[str], None]) -> Iterator[str]:
    """Run the profile `spark` of the compose file (a master and two workers), and remove it at the end."""
    from harness.provision.spark_image import ensure_spark_image

    variables = {
        "COMPOSE_PROJECT_NAME": name,
        "EOS_CLUSTER_LABEL": name,
        "EOS_SPARK_IMAGE": ensure_spark_image(report),
        "EOS_PORT_SPARK": str(_free_port()),
    }
    workers = ("spark-worker-1", "spark-worker-2")
    with tempfile.TemporaryDirectory() as folder:
        env_file = Path(folder) / "spark.env"
        write_env_file(env_file, variables)
        project = ComposeProject(env_file, ["spark-master", *workers], ["spark"])
        try:
            project.start(wait=True)
            wait_until(
                lambda: project.log("spark-master").count("Registering worker") >= len(workers),
                START_LIMIT_S,
                "two Spark workers in containers to register",
                every=1.0,
            )
            yield f"spark://{_HOST}:{variables['EOS_PORT_SPARK']}"
        finally:
            project.remove()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _accepts(port: int) -> bool:
    with socket.create_connection((_HOST, port), timeout=1):
        return True


def run_batch(job: Job, limit: float) -> Observation:
    """Run a batch job as a separate process and return its observation."""
    path = write_job(job)
    log = Path(job.folder) / "driver.log"
    with log.open("ab") as out:
        done = subprocess.run(
            [sys.executable, "-m", "harness.witness.spark.spark_process", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=limit,
            check=False,
        )
    if done.returncode != 0:
        raise HarnessError(f"the Spark job ended with {done.returncode}", f"look at {log}")
    return load(Path(job.folder) / OBSERVATION)
