"""Intents on disk: all files together show which injections are unhealed, even if a last line is torn."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.cluster.state_directory import State
from harness.evidence.history import HistoryWriter
from harness.faults.intents import fold, open_journal, unhealed


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def intent(journal: HistoryWriter, fault: str = "jitter", node: str = "kafka-1") -> str:
    return journal.fault_intent(fault, node, [node], params={}, undo={"steps": [{"do": "x", "node": node}]})


def writer(state: State, client: str) -> HistoryWriter:
    return HistoryWriter(state.intents / f"{client}.jsonl", run="r", client=client, role="faults")


def test_without_injections_nothing_is_unhealed(state: State) -> None:
    assert unhealed(state) == []


def test_an_intent_is_unhealed_until_its_healed_line_is_written(state: State) -> None:
    with open_journal(state) as journal:
        first, second = intent(journal), intent(journal, "kill", "kafka-2")
        journal.fault_bite(first, {"slower_ms": 1})
        assert [line.id for line in unhealed(state)] == [first, second]

        journal.fault_healed(first, {})

        (left,) = unhealed(state)
        assert (left.id, left.fault, left.resolved) == (second, "kill", ["kafka-2"])
        assert left.undo == {"steps": [{"do": "x", "node": "kafka-2"}]}


def test_no_bite_and_heal_failed_lines_heal_nothing(state: State) -> None:
    with open_journal(state) as journal:
        one = intent(journal)
        journal.fault_no_bite(one, "too quick")
        journal.fault_heal_failed(one, "no answer")
    assert [line.id for line in unhealed(state)] == [one]


def test_another_process_heals_in_its_own_file(state: State) -> None:
    with writer(state, "faults-1") as dead, writer(state, "faults-2") as alive:
        old = intent(dead)
        new = intent(alive, "pause")
        alive.fault_healed(old, {"healed_by": 2})
    with writer(state, "faults-0") as healer:
        assert [line.id for line in unhealed(state)] == [new]
        healer.fault_healed(new, {})
    assert unhealed(state) == []


def test_two_files_use_different_ids(state: State) -> None:
    with writer(state, "faults-1") as one, writer(state, "faults-2") as two:
        assert intent(one) != intent(two)
    assert len(unhealed(state)) == 2


def test_the_oldest_intent_is_first_for_any_file_names(state: State) -> None:
    with writer(state, "faults-9") as early, writer(state, "faults-1") as late:
        ids = [intent(early), intent(late), intent(early)]
    assert [line.id for line in unhealed(state)] == ids


def test_a_torn_last_line_is_left_out_and_the_rest_counts(state: State) -> None:
    with writer(state, "faults-1") as journal:
        one = intent(journal)
        journal.fault_healed(one, {})
        two = intent(journal, "kill")
    (file,) = state.intents.glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    closing = next(i for i, line in enumerate(lines) if b'"close"' in line)

    for cut in range(1, len(lines[closing])):
        file.write_bytes(b"".join(lines[:closing]) + lines[closing][:cut])
        assert [line.id for line in fold(state.intents)] == [two]

    # A torn intent does not count, because an injection starts only after its whole line is on disk.
    torn = next(i for i, line in enumerate(lines) if two.encode() in line)
    file.write_bytes(b"".join(lines[:torn]) + lines[torn][:-1])
    assert fold(state.intents) == []


def test_a_healed_line_that_was_torn_heals_nothing(state: State) -> None:
    with writer(state, "faults-1") as journal:
        one = intent(journal)
        journal.fault_healed(one, {})
    (file,) = state.intents.glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    healed = next(i for i, line in enumerate(lines) if b'"healed"' in line)
    file.write_bytes(b"".join(lines[:healed]) + lines[healed][:-1])
    assert [line.id for line in fold(state.intents)] == [one]


def test_damage_in_the_middle_is_reported_with_file_and_line(state: State) -> None:
    with writer(state, "faults-1") as journal:
        intent(journal)
    (file,) = state.intents.glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"{nonsense\n" + lines[1])
    with pytest.raises(UsageError, match=r"faults-1\.jsonl:2: not a history line"):
        unhealed(state)


def test_a_removed_run_directory_hides_no_other_intent(state: State, tmp_path: Path) -> None:
    with writer(state, "faults-1") as journal:
        one = intent(journal)
    (state.intents / "faults-0.jsonl").symlink_to(tmp_path / "removed" / "faults.jsonl")
    assert [line.id for line in unhealed(state)] == [one]


def test_journals_that_one_process_opens_at_once_have_names_of_their_own(state: State) -> None:
    for _ in range(50):
        open_journal(state).close()
    assert len(list(state.intents.iterdir())) == 50
