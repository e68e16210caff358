"""A client call that never returns from ending a transaction: it is abandoned, recorded and repeated."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from harness.clients.scripted import client_libraries
from harness.clients.scripted.client_libraries import KafkaPythonClient, Named, RefusedCallError
from harness.walkthroughs import delayed_endtxn
from harness.walkthroughs.delayed_endtxn import MOST_AGAIN, DelayedEnds
from harness.walkthroughs.endtxn_race import Case, Try


def test_a_call_without_a_limit_is_abandoned_after_our_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_libraries, "CALL_S", 0.05)
    client, never = KafkaPythonClient(Named("b:1", "id", "c", 1000)), threading.Event()
    client._producer = SimpleNamespace(abort_transaction=never.wait, commit_transaction=lambda: None)

    client.end("commit")
    with pytest.raises(RefusedCallError, match="NeverReturned"):
        client.end("abort")
    never.set()


@pytest.mark.parametrize("times", [0, 1, MOST_AGAIN, MOST_AGAIN + 1])
def test_a_hung_attempt_is_repeated_a_few_times(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    monkeypatch.setattr(DelayedEnds, "_judged", lambda _, tries: tries)
    ends, left = DelayedEnds(SimpleNamespace(tries=2), ()), times  # type: ignore[arg-type]

    def way(cases: Sequence[Case]) -> list[Try]:
        nonlocal left
        made: list[Any] = [Try(case, f"t{case.variant}", 1, []) for case in cases]
        for one in made:
            if one.case.variant == "cA" and left:
                left, one.error = left - 1, "NeverReturned: it did not come back"
                break
        return made

    found = ends._made(way, [Case("kafka-python", "aC"), Case("kafka-python", "cA")])
    assert sorted(one.case.variant for one in found) == ["aC", "aC", "cA", "cA"]
    assert sum(one.hung for one in found) == (times > MOST_AGAIN)
    assert ends._hung == ["tcA"] * min(times, MOST_AGAIN)
    assert delayed_endtxn.SLOTS > 1
