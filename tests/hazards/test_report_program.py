"""The program of the reports in docs/upstream shows each hazard on a single broker, without the harness."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.base.ports import free_ports
from harness.base.waits import wait_until
from harness.kafka.admin import random_cluster_id
from harness.kafka.connection import answers
from harness.provision.kafka_runtime import ensure_kafka
from tests.hazards.conftest import CHANGED

pytestmark = [pytest.mark.soak, pytest.mark.java]

PROGRAM = Path(__file__).parents[2] / "docs" / "upstream" / "late_frames.py"
PORTS = ("9092", "9093", "9094", "19092", "19094")
OBSERVED = {
    "marker": (
        "A: acknowledged at offset 0",
        "B: acknowledged at offset 2",
        r"B is committed.* reads \[\] and",
    ),
    "offsets": ("B is committed. The group is at 1, and should be at 4",),
    "partitions": ("A: acknowledged at offset 0", r"B fails, although .*_FENCED"),
    "sequence": ("A: .*_PURGE_QUEUE", "B: acknowledged at offset 2", r"B is committed.* reads \['S'\] and"),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start the broker that the program describes, with other ports, and yield a copy with these ports."""
    folder = tmp_path_factory.mktemp("program")
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    text = re.sub(r"\b1?909[234]\b", lambda match: ports[match[0]], PROGRAM.read_text())
    text = text.replace("/tmp/late-frames", str(folder / "data"))
    (folder / "late_frames.py").write_text(text)
    properties = folder / "server.properties"
    properties.write_text("\n".join(re.findall(r"^    (\S+=\S+)$", text, re.MULTILINE)))
    runtime = ensure_kafka(print)
    storage = ["format", "-t", random_cluster_id(), "-c", str(properties)]
    subprocess.run(runtime.command("kafka.tools.StorageTool", *storage, options=[]), check=True, timeout=120)
    with (folder / "log").open("wb") as log:
        node = subprocess.Popen(
            runtime.command("kafka.Kafka", str(properties), options=[]), stdout=log, stderr=log
        )
    try:
        wait_until(lambda: answers("127.0.0.1", int(ports["9092"])), 180, "the broker to answer")
        yield folder / "late_frames.py"
    finally:
        node.kill()
        node.wait()


@pytest.mark.parametrize("hazard", OBSERVED)
def test_the_program_shows_a_hazard(program: Path, hazard: str) -> None:
    done = subprocess.run(
        [sys.executable, str(program), hazard], capture_output=True, text=True, timeout=180, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, f"{done.stderr}: {CHANGED}"
    for line in OBSERVED[hazard]:
        assert re.search(line, done.stdout), f"{line}: {done.stdout}. {CHANGED}"
