"""Collection of outputs that are no topic, when the application has been stopped.

Each output becomes a file of JSON lines in the run directory. A command and a query are run twice, or Spark
runs the query the second time: rows that still change are no evidence.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from harness.app.http_sink import LARGEST_BODY, REFUSED
from harness.app.launch_template import Placeholder, fill
from harness.base.errors import HarnessError, describe_error
from harness.base.secrets import redact
from harness.cluster.cluster import Cluster
from harness.evidence.contract_statement import REFERENCES
from harness.evidence.row_output import FOLDER, BadRowError, RowSource, rows_of
from harness.provision.java import find_java
from harness.provision.jdbc_rows import digests, ensure_driver, write_rows
from harness.scenario import Scenario
from harness.scenario.app_parts import OutputPart

COMMAND_LIMIT_S: Final = 120.0
"""Time limit for a command or query that returns the rows of one output."""
_MOST_STDERR: Final = 300


def rows_file(run: Path, name: str) -> Path:
    """Return the file with the rows of an output in a run directory."""
    return run / FOLDER / f"{name}.jsonl"


def references(scenario: Scenario) -> list[str]:
    """Return the names of the rows of calm runs: inputs, and outputs that are compared with them."""
    compared = [part.table or part.topic for part in scenario.output if part.reference]
    names = [part.table or part.topic for part in scenario.input] + compared if compared else []
    return [f"{name}{ending}" for name in names for ending in REFERENCES]


def own_value(cluster: Cluster, run_id: str, name: str) -> str:
    """Return the value of the placeholder {run} or {shared}. The shared folder is created."""
    if name == "run":
        return run_id
    folder = cluster.state.apps / run_id / "shared"
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder.resolve())


class RowCollection:
    """The outputs of one run that consist of rows."""

    def __init__(self, cluster: Cluster, scenario: Scenario, run_id: str, run: Path) -> None:
        self._cluster = cluster
        self._scenario = scenario
        self._run_id = run_id
        self._run = run
        self.problems: dict[str, str] = {}
        """Why the rows of an output are not known, by its name."""

    def sources(self) -> list[RowSource]:
        """Return where each output with rows is. Missing jars of database drivers are fetched."""
        found = [self._source(part) for part in self._scenario.output if not part.is_topic]
        names = references(self._scenario)
        files = {name: str(rows_file(self._run.resolve(), name)) for name in names}
        return found + [RowSource(name=name, source="reference", file=files[name]) for name in names]

    def _source(self, part: OutputPart) -> RowSource:
        return RowSource(
            name=part.name,
            source=part.sources[0],
            file=str(rows_file(self._run.resolve(), part.name)),
            counted=part.is_counted,
            jdbc=self._text(part.jdbc),
            query=part.query,
            driver=[str(path) for path in ensure_driver(part.driver)],
            user=part.user,
            password=part.password,
        )

    def collect(self, log: Callable[[str], None]) -> None:
        """Write the files of all outputs. An output that cannot be read is in `problems`."""
        for part in self._scenario.output:
            if part.is_topic:
                continue
            path = rows_file(self._run, part.name)
            path.parent.mkdir(exist_ok=True)
            try:
                self._collect(part, path, log)
                rows = sum(1 for _ in rows_of(path))
                log(f"output {part.name} has {rows} rows")
            except (HarnessError, BadRowError, OSError) as error:
                self.problems[part.name] = describe_error(error)
                path.unlink(missing_ok=True)  # so that no witness takes it for the output
                log(f"output {part.name}: {self.problems[part.name]}")

    def _collect(self, part: OutputPart, path: Path, log: Callable[[str], None]) -> None:
        if part.http:
            self._check_refused(path)
            return  # the sink has written the file
        source = self._source(part)
        if part.jdbc:
            log(f"driver of output {part.name}: {digests([Path(jar) for jar in source.driver])}")
        again = path.with_suffix(".again")
        try:
            # Spark reads a database a second time. Without Spark, it is read twice here.
            files = (path,) if part.jdbc and "spark" in self._scenario.verify.witnesses else (path, again)
            for file in files:
                if part.jdbc:
                    write_rows(source, file, COMMAND_LIMIT_S)
                else:
                    self._run_command(part, file)
            _check_same(files[0], files[-1])
        finally:
            again.unlink(missing_ok=True)

    @staticmethod
    def _check_refused(path: Path) -> None:
        """Raise HarnessError if the sink refused calls: the file does not contain them."""
        refused = path.with_suffix(REFUSED)
        if refused.exists():
            raise HarnessError(
                f"the HTTP sink refused {refused.read_text()}",
                "send bodies without a Content-Encoding, or packed with gzip or deflate, of at most "
                f"{LARGEST_BODY} bytes",
            )

    def _run_command(self, part: OutputPart, path: Path) -> None:
        assert self._scenario.app is not None
        command = [self._text(text) for text in part.command]
        with path.open("wb") as file:
            try:
                process = subprocess.Popen(
                    command,
                    stdout=file,
                    stderr=subprocess.PIPE,
                    stdin=subprocess.DEVNULL,
                    cwd=self._scenario.app.directory,
                    start_new_session=True,
                )
            except OSError as error:
                raise HarnessError(
                    f"the command could not be started: {command[0]}: {error.strerror}",
                    f"correct the command of output {part.name}",
                ) from error
            try:
                _, stderr = process.communicate(timeout=COMMAND_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise HarnessError(
                    f"the command did not end within {COMMAND_LIMIT_S:g} s", "it must print all rows and end"
                ) from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if process.returncode != 0:
            text = redact(stderr.decode(errors="replace").strip()[-_MOST_STDERR:])
            raise HarnessError(
                f"the command ended with exit code {process.returncode}: {text or 'it printed no reason'}",
                f"run it by hand: {' '.join(command)}",
            )

    def _text(self, text: str) -> str:
        return fill(text, self._value)

    def _value(self, found: Placeholder) -> str:
        if found.name in ("run", "shared"):
            return own_value(self._cluster, self._run_id, found.name)
        assert self._scenario.app is not None
        others: dict[str, Callable[[], str]] = {
            "group": lambda: self._scenario.app.group if self._scenario.app else "",
            "python": lambda: sys.executable,
            "java": lambda: str(find_java().executable),
        }
        return others[found.name]()


def _check_same(path: Path, again: Path) -> None:
    """Raise HarnessError if two files do not contain the same rows, in any order."""
    first, second = Counter(rows_of(path)), Counter(rows_of(again))
    if first != second:
        (row, *_) = _differences(first, second)
        raise HarnessError(
            f"the rows changed although the application was stopped, such as {row}",
            "rows must not contain times of the reading, and nothing else may write them during the run",
        )


def _differences(first: Counter[bytes], second: Counter[bytes]) -> Iterator[str]:
    for row in sorted({*first, *second}):
        if first[row] != second[row]:
            yield row[:100].decode(errors="replace")
