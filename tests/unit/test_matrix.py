"""The client matrix without a cluster: drivers, files of results, tables, and names on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from harness.base.errors import HarnessError, UsageError
from harness.clients.scripted.client_libraries import NEVER_RETURNED, RefusedCallError
from harness.walkthroughs.matrix import sweep
from harness.walkthroughs.matrix.bench import Bench
from harness.walkthroughs.matrix.cases import CASES, Result, find_cases
from harness.walkthroughs.matrix.driver import Driver, UnsupportedCallError
from harness.walkthroughs.matrix.libraries import LIBRARIES, Launch, Library, find_libraries
from harness.walkthroughs.matrix.sweep import Attempt
from harness.walkthroughs.matrix.table import (
    append,
    differing_cells,
    format_place,
    places,
    read_attempts,
    requests_of,
    shown,
)
from tools.matrix_page import page

ECHO = """
import sys
print("ok", flush=True)
for line in sys.stdin:
    print(line.removeprefix("print ").strip(), flush=True)
    if "last" in line:
        break
"""


def attempt(**changes: object) -> Attempt:
    """Return an attempt of sarama, with some fields changed."""
    fields: dict[str, object] = {
        "library": "sarama",
        "version": "1.61.1",
        "kafka": "4.3.1",
        "transaction_version": 2,
        "case": "zombie",
        "number": 1,
        "mark": "holds",
        "observed": "commit of the first: error",
        "requests": {"Produce": 9, "EndTxn": 3},
        "backend": "process",
        "day": "2026-11-20",
    }
    return msgspec.convert(fields | changes, Attempt)


def test_a_driver_answers_each_command(tmp_path: Path) -> None:
    driver = Driver([sys.executable, "-c", ECHO], {}, tmp_path / "log")
    driver.call("print", "ok")
    with pytest.raises(RefusedCallError, match="PRODUCER_FENCED: another one") as refused:
        driver.call("print", "error PRODUCER_FENCED another one")
    assert refused.value.name == "PRODUCER_FENCED"
    with pytest.raises(UnsupportedCallError, match="no metadata"):
        driver.call("print", "unsupported no metadata")
    driver.call("print", "ok")
    driver.close()
    driver.close()


def test_a_driver_that_ends_is_an_error_with_its_log(tmp_path: Path) -> None:
    driver = Driver([sys.executable, "-c", ECHO], {}, tmp_path / "log")
    with pytest.raises(RefusedCallError):
        driver.call("print", "error a last one")
    with pytest.raises((HarnessError, BrokenPipeError)):
        driver.call("print", "ok")
    driver.close()


def test_a_driver_without_an_answer_is_ended_so_that_no_late_answer_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Driver([sys.executable, "-c", ECHO], {}, tmp_path / "log")
    monkeypatch.setattr("harness.walkthroughs.matrix.driver.select.select", lambda *_: ([], [], []))
    for problem in ("no answer for", "an earlier call has not returned"):
        with pytest.raises(RefusedCallError, match=problem) as refused:
            silent.call("print", "ok")
        assert refused.value.name == NEVER_RETURNED
    silent.close()


def test_an_attempt_without_a_membership_shows_nothing_about_the_library(tmp_path: Path) -> None:
    refusing = ECHO.replace('line.removeprefix("print ").strip()', '"error WaitTimeoutError no assignment"')
    bench = Bench.__new__(Bench)
    bench.driver = Driver([sys.executable, "-c", refusing], {}, tmp_path / "log")
    with pytest.raises(HarnessError, match="no membership: WaitTimeoutError"):
        bench.former_member("member", "kafka:9092", "group", "topic")
    bench.driver.close()


def test_an_attempt_comes_back_from_a_file_and_replaces_one_that_shows_nothing(tmp_path: Path) -> None:
    file = tmp_path / "matrix.jsonl"
    for mark in ("not shown", "holds"):
        append(file, attempt(mark=mark))
    append(file, attempt(number=2))
    assert [(a.number, a.mark) for a in read_attempts(file)] == [(1, "holds"), (2, "holds")]


def test_attempts_of_a_file_are_in_the_order_of_the_matrix(tmp_path: Path) -> None:
    file = tmp_path / "matrix.jsonl"
    for library, version, case in (
        ("java", "4.3.1", "stale group"),
        ("sarama", "1.61.1", "zombie"),
        ("java", "4.3.1", "zombie"),
        ("java", "4.10.0", "zombie"),
    ):
        append(file, attempt(library=library, version=version, case=case))
    found = [(one.library, one.version, one.case) for one in read_attempts(file)]
    assert found == [
        ("java", "4.10.0", "zombie"),
        ("java", "4.3.1", "zombie"),
        ("java", "4.3.1", "stale group"),
        ("sarama", "1.61.1", "zombie"),
    ]


def test_a_second_result_for_one_attempt_is_refused_and_hides_no_difference(tmp_path: Path) -> None:
    file = tmp_path / "matrix.jsonl"
    for mark in ("broken", "holds"):
        append(file, attempt(mark=mark))
    with pytest.raises(UsageError, match=r"line 2: attempt 1 of this cell is in the file already"):
        read_attempts(file)


def test_a_sweep_makes_only_the_attempts_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"kafka": "4.3.1", "transaction_version": 2, "backend": "process", "day": "2026-11-20"}
    monkeypatch.setattr(sweep, "_place", lambda _: place)
    monkeypatch.setattr(sweep, "_attempt", lambda *_: (Result("holds", ""), {}))
    prepared: list[str] = []

    def library(name: str) -> Library:
        def prepare(_: object) -> Launch:
            prepared.append(name)
            return Launch([], {})

        return Library(name, "1", prepare)

    done = shown(
        [
            *(attempt(library="whole", version="1", number=number) for number in (1, 2)),
            attempt(library="part", version="1", number=2),
            attempt(library="part", version="1", number=1, mark="not shown"),
            attempt(library="other", version="1", number=1, transaction_version=1),
        ]
    )
    made = sweep.Sweep(None, 2, tmp_path, print, done)  # type: ignore[arg-type]
    attempts = list(
        made.attempts([library(name) for name in ("whole", "part", "other")], find_cases(("zombie",)))
    )

    assert [(a.library, a.number) for a in attempts] == [("part", 1), ("other", 1), ("other", 2)]
    assert prepared == ["part", "other"]


def test_a_line_that_is_no_attempt_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "matrix.jsonl"
    append(file, attempt())
    with file.open("a") as lines:
        lines.write('{"library": "sarama"}\n')
    with pytest.raises(UsageError, match=r"matrix\.jsonl, line 2"):
        read_attempts(file)


def test_a_cell_shows_every_mark_if_its_attempts_differ() -> None:
    attempts = [attempt(), attempt(number=2, mark="stopped"), attempt(case="lost ack", mark="exposed")]
    table = "\n".join(format_place(attempts, ("4.3.1", 2)))
    assert "holds (1), stopped (1)" in table
    assert "exposed (1)" in table
    (cell,) = differing_cells(attempts)
    assert {a.case for a in cell} == {"zombie"}
    assert differing_cells([attempt(), attempt(number=2)]) == []


def test_versions_are_in_order_and_requests_are_the_highest() -> None:
    attempts = [
        attempt(kafka="3.9.2", transaction_version=0),
        attempt(kafka="4.3.1", transaction_version=1),
        attempt(requests={"Produce": 13}),
    ]
    assert places(attempts) == [("4.3.1", 2), ("4.3.1", 1), ("3.9.2", 0)]
    assert requests_of(attempts) == "Produce 13, EndTxn 3"


def test_the_page_has_a_section_for_each_version_and_the_evidence() -> None:
    text = page([attempt(), attempt(kafka="3.9.2", transaction_version=0, mark="exposed")])
    assert "## Kafka 4.3.1, transaction version 2" in text
    assert "## Kafka 3.9.2, transaction version 0" in text
    assert "commit of the first: error" in text
    assert "Produce 9, EndTxn 3" in text
    for case in CASES:
        assert case.asks in text


def test_libraries_and_cases_are_found_by_name() -> None:
    assert {library.version for library in find_libraries(("java",))} == {"4.4.0", "4.3.1", "3.9.2"}
    assert [library.key for library in find_libraries(("java 3.9.2",))] == ["java 3.9.2"]
    assert find_libraries(()) == LIBRARIES
    assert [case.name for case in find_cases(("zombie",))] == ["zombie"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        find_libraries(("java", "nothing"))
    assert "franz-go 1.22.2" in refused.value.hint
    with pytest.raises(UsageError) as refused:
        find_cases(("nothing",))
    assert "commit and abort" in refused.value.hint
