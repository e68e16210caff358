"""The commands of README.md and of the documentation, and how the tests run each one.

A block of commands is a fenced or indented block in which a line begins with `$ `, or whose first line
begins with a known program. In the first case only the lines with `$ ` are commands, in the second all are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

PROGRAMS: Final = (
    *(
        "eos",
        ".venv/bin/eos",
        "eos-harness/.venv/bin/eos",
        "make",
        "python",
        "pytest",
        "git",
        "docker",
        "kafka-acls.sh",
    ),
    *(".", "touch", "for"),
)
"""Programs that a block of commands may contain."""
_COMMAND: Final = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{'|'.join(map(re.escape, PROGRAMS))})(?: |$)")
_SPAN: Final = re.compile(r"`((?:eos|make|pytest|python -m) [^`]+)`")


class Command(NamedTuple):
    """A command as it is printed on a page, without its comment."""

    page: str
    text: str
    in_block: bool

    @property
    def words(self) -> list[str]:
        """The words of the command, as a shell would pass them."""
        return shlex.split(self.text)

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def commands() -> list[Command]:
    """Return every command on a page, in the order of the pages. The changelog names former commands."""
    found = []
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            name = str(page.relative_to(ROOT))
            text = page.read_text()
            found += [Command(name, line, in_block=True) for block in _blocks(text) for line in _lines(block)]
            found += [Command(name, " ".join(span.split()), in_block=False) for span in _SPAN.findall(text)]
    return found


def unknown_lines() -> list[str]:
    """Return the lines in blocks of commands that are not a command of the tables below."""
    found = []
    for page in PAGES:
        for block in _blocks(page.read_text()):
            found += [line for line in _lines(block) if not _COMMAND.match(line)]
    return found


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each block of a page: fenced, or indented by four spaces after an empty line."""
    block: list[str] | None = None
    indented: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.lstrip().startswith("```"):
            if block is None:
                block = []
            else:
                yield block
                block = None
        elif block is not None:
            block.append(line)
        elif re.match(r" {4,}\S", line):
            indented.append(line.strip())
        elif indented:
            yield indented
            indented = []


def _lines(block: list[str]) -> list[str]:
    """Return the commands in a block: joined at a backslash, without comments, and without `- run: `."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(block)).splitlines()
    steps = [line.strip().removeprefix("- run: ") for line in joined if line.strip().startswith("- run: ")]
    prompted = [line.removeprefix("$ ") for line in joined if line.startswith("$ ")]
    lines = steps or prompted or (joined if joined and _COMMAND.match(joined[0]) else [])
    return [text for line in lines if (text := re.split(r"\s+#\s", line)[0].strip())]


HERE: Final = "here"
CLUSTER: Final = "cluster"
SOAK: Final = "soak"
OWN: Final = "own cluster"

HOW: Final[dict[str, str]] = {
    # Commands that need no cluster. tests/unit/test_doc_commands.py runs them.
    "eos list": HERE,
    "eos show leader-kills": HERE,
    "eos new mine.toml": HERE,
    "eos plan mine.toml": HERE,
    "eos plan jitter --seed 7 --set 'workload.0.settings={\"linger.ms\" = 50}'": HERE,
    "eos plan leader-kills --seed 7": HERE,
    "eos plan no-group-metadata --seed 7": HERE,
    "eos check runs/leader-kills/latest": HERE,
    "eos check runs/without-idempotence/latest": HERE,
    "eos report runs/leader-kills/latest": HERE,
    "eos compare runs/leader-kills/latest runs/without-idempotence/latest": HERE,
    "eos metrics runs/leader-kills/latest": HERE,
    "eos index": HERE,
    "eos results": HERE,
    "eos diagram runs/idempotent-walkthrough/latest": HERE,
    "eos doctor": HERE,
    ". .venv/bin/activate": HERE,
    # Short commands on the cluster of the session. tests/cluster/test_doc_commands.py runs them.
    "eos up": CLUSTER,
    "eos status": CLUSTER,
    "eos logs kafka-1": CLUSTER,
    "eos tool features describe": CLUSTER,
    "eos heal": CLUSTER,
    "eos verify --bootstrap HOST:PORT --topic orders": CLUSTER,
    "eos hanging --bootstrap HOST:PORT": CLUSTER,
    "eos hanging --bootstrap HOST:PORT --topic orders": CLUSTER,
    "eos audit --topic orders": CLUSTER,
    # Long commands on the cluster of the session.
    "eos facts": SOAK,
    "eos run without-idempotence": SOAK,
    "eos run jitter": SOAK,
    "eos run jitter --seed 7 --set 'workload.0.settings={\"linger.ms\" = 50}'": SOAK,
    "eos run without-idempotence --set workload.0.idempotence=true": SOAK,
    "eos run leader-kills --seed 7": SOAK,
    "eos run no-group-metadata --seed 7": SOAK,
    "eos run mine.toml --expected": SOAK,
    "eos run mine.toml --duration 30s": SOAK,
    "eos-harness/.venv/bin/eos run mine.toml --expected --junit junit.xml": SOAK,
    "eos run idempotent-walkthrough": SOAK,
    "eos run transactional-walkthrough": SOAK,
    "eos run delayed-endtxn": SOAK,
    "eos run examples/orders/orders.toml --seed 1": SOAK,
    "eos run examples/orders/orders.toml --seed 3 --set app.env.MISTAKE=no-rewind": SOAK,
    "eos shrink runs/without-idempotence/latest": SOAK,
    # Commands that make or remove a cluster.
    "make demo": OWN,
    "eos down": OWN,
    # Commands that these tests do not run, each with the reason.
    "git clone <this repository> eos && cd eos": "the address of the repository is the reader's",
    "make test": "it is the suite that contains this test",
    "make systems": "tests/cluster/test_systems.py runs the same cases",
    "make -C eos-harness venv": "it made the environment in which the tests run",
    "make venv": "it made the environment in which the tests run",
    "touch stop-chaos": "tests/external creates the abort file during a run",
}
"""How the tests run each command in a block: a group of tests, or the reason why they do not."""

_OTHER_TESTS: Final = {
    r"kafka-acls.sh ": "tests/external grants these rights to a user and runs with them",
    r"eos .* --command-config client.properties": "tests/external uses a cluster with a login",
    r".* --cluster staging.toml": "tests/external runs these options on a cluster of another owner",
    r"for seed in .*copier": "tests/cluster/test_application.py runs the twenty seeds in a soak",
    r"eos run examples/java/abort.toml": "tests/cluster/test_application.py runs both",
    r"eos run examples/copier/zombie.toml": "tests/cluster/test_application.py runs both in a soak",
    r"eos init ": "tests/cluster/test_application.py makes its two calm runs of the example application",
    r"eos run late-marker-packets": "tests/hazards/test_late_marker_packets.py runs it where it is possible",
    r"eos run lost-flows": "tests/hazards/test_by_chance.py runs it where it is possible",
    r"eos (?:up --internal-tap|run late-)": "tests/hazards/test_late_marker.py has such a cluster",
    r"(?:eos late|for seed in) ": "hours of runs; tests/hazards/test_by_chance.py makes a part of them",
    r"eos .* --kafka \d": "tests/cluster/test_kafka_versions.py has such a cluster, and a run on it",
    r"eos run rolling-upgrade ": "tests/cluster/test_kafka_versions.py runs it on a cluster of its own",
    r"python -m tools.lock_kafka ": "tests/unit/test_kafka_versions.py writes the lines of a lock file",
    r"(?:make|eos|.*tools.)\s?matrix": "tests/cluster/test_matrix.py runs a part of it",
    r"eos kip |python -m tools.kips_page": "tests/cluster/test_kips.py carries out every observation",
    r"eos claims|python -m tools.metrics_page": "tests/cluster/test_metrics.py carries out every observation",
    r"eos watch |eos run canary --cluster": "tests/cluster/test_watch.py and tests/external make rounds",
    r"eos run leader-kills .*verify.metrics=true": "tests/cluster/test_metrics.py makes such a run",
    r"make spark-image|.*spark": "tests/spark/test_standalone.py builds the image and uses it",
}
"""Commands by their form, and the other tests that do what the command does."""


def how(command: Command) -> str | None:
    """Return how the tests run a command; None if no test and no reason is recorded."""
    others = [reason for form, reason in _OTHER_TESTS.items() if re.match(form, command.text)]
    return HOW.get(command.text) or (others[0] if others else None)


def commands_to_run(group: str) -> list[str]:
    """Return the commands of one group, each once, in the order of the pages."""
    return list(dict.fromkeys(c.text for c in commands() if c.in_block and how(c) == group))
