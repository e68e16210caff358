"""A client call that never returns: the call is abandoned, and the attempt is repeated."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from harness.clients.scripted import client_libraries
from harness.clients.scripted.client_libraries import KafkaPythonClient, ProducerConfig, RefusedCallError
from harness.walkthroughs import delayed_endtxn
from harness.walkthroughs.delayed_endtxn import MOST_REPEATS, DelayedEnds
from harness.walkthroughs.endtxn_race import Attempt, Case


def test_an_end_without_a_time_limit_is_abandoned_after_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_libraries, "CALL_S", 0.05)
    client, never = KafkaPythonClient(ProducerConfig("b:1", "id", "c", 1000)), threading.Event()
    client._producer = SimpleNamespace(abort_transaction=never.wait, commit_transaction=lambda: None)

    client.end("commit")
    with pytest.raises(RefusedCallError, match="NeverReturned"):
        client.end("abort")
    never.set()


@pytest.mark.parametrize("times", [0, 1, MOST_REPEATS, MOST_REPEATS + 1])
def test_a_hung_attempt_is_repeated_a_few_times(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    monkeypatch.setattr(DelayedEnds, "_judge", lambda _, attempts: attempts)
    ends, left = DelayedEnds(SimpleNamespace(tries=2, control_tries=2), ()), times  # type: ignore[arg-type]

    def make(cases: Sequence[Case]) -> list[Attempt]:
        nonlocal left
        made = [Attempt(case, f"t{case.variant}", []) for case in cases]
        for attempt in made:
            if attempt.case.variant == "cA" and left:
                left, attempt.error = left - 1, "NeverReturned: it did not come back"
                break
        return made

    attempts = ends._attempt(make, [Case("kafka-python", "aC"), Case("kafka-python", "cA")])
    assert sorted(attempt.case.variant for attempt in attempts) == ["aC", "aC", "cA", "cA"]
    assert sum(attempt.hung for attempt in attempts) == (times > MOST_REPEATS)
    assert ends._hung == ["tcA"] * min(times, MOST_REPEATS)
    assert delayed_endtxn.SLOTS > 1


def test_controls_and_second_means_have_a_number_of_attempts_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DelayedEnds, "_judge", lambda _, attempts: attempts)
    ends = DelayedEnds(SimpleNamespace(tries=3, control_tries=1), ())  # type: ignore[arg-type]

    def make(cases: Sequence[Case]) -> list[Attempt]:
        return [Attempt(case, "t", []) for case in cases]

    cases = [Case("l", "aC"), Case("l", "cA", "re-init"), Case("l", "cC", harmless=True)]
    attempts = ends._attempt(make, cases)
    assert [attempt.case.variant for attempt in attempts] == ["aC", "cA", "cC", "aC", "aC"]
    assert len(ends._attempt(make, cases[:1], second_means=True)) == 1
