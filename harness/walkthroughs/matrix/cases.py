"""The cases of the matrix: what a producer does, and what must be in the topic afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from harness.base.errors import UsageError
from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.clients.scripted.membership import membership
from harness.cluster.layout import BrokerListener
from harness.faults import ArmedFrameFault, HoldFrame, LoseResponseFrame
from harness.walkthroughs.matrix.bench import Bench
from harness.walkthroughs.matrix.driver import UNNAMED

Mark = Literal["holds", "exposed", "broken", "stopped", "not possible", "not shown"]
"""`holds`: exactly-once. `exposed`: a known hazard struck, and no client got an error. `broken`: the library
lost, doubled or mixed records, or an outdated producer was not refused. `stopped`: the library gave up with
an error, and nothing was lost that it had acknowledged. `not possible`: the library has no such call.
`not shown`: the attempt did not happen as intended, and shows nothing."""

NOT_SHOWN: Final = "not shown"
_POSITION: Final = 7
_ANSWER_LIMIT_S: Final = 30.0
_MESSAGE: Final = 80
_LARGE: Final = 600_000
"""Characters of a value that fills a batch alone: two of them exceed the batches of every library."""


class Result(NamedTuple):
    """The result of one attempt: its mark, and what was observed."""

    mark: Mark
    observed: str


class Case(NamedTuple):
    """A case: its name, what it asks, and the function that carries it out."""

    name: str
    asks: str
    attempt: Callable[[Bench], Result]


def _error(call: Callable[[], object]) -> str:
    """Return the name of the error of a call, its message if it has no name, or an empty string."""
    try:
        call()
    except RefusedCallError as refused:
        return refused.error.message[:_MESSAGE] if refused.name == UNNAMED else refused.name
    return ""


def _late_answer(held: ArmedFrameFault) -> str:
    """Release the held request, and return the broker's answer to it."""
    held.release()
    return wait_until(
        lambda: held.wait().hits[0].answer or "", _ANSWER_LIMIT_S, "the answer to the late request"
    )


def _compare(expected: list[str], found: list[str], errors: list[str]) -> Result:
    """Compare the committed values with the expected ones. `errors` are those that the library reported."""
    observed = f"committed: {' '.join(found) or 'nothing'}"
    if reported := [error for error in errors if error]:
        observed += f"; errors: {', '.join(reported)}"
    # A library that reported an error has promised nothing about the end of the transaction.
    if found == expected or (reported and not found):
        return Result("stopped" if reported else "holds", observed)
    return Result("broken", f"{observed}; expected: {' '.join(expected)}")


def commit_and_abort(bench: Bench) -> Result:
    """Commit, abort and commit. Records of the aborted transaction are not read."""
    place, producer = bench.topic(), bench.producer()
    producer.begin(place, "a1", "a2", "a3")
    producer.call("commit")
    producer.begin(place, "b1", "b2", "b3")
    producer.call("abort")
    producer.begin(place, "c1", "c2", "c3")
    producer.call("commit")
    return _compare(["a1", "a2", "a3", "c1", "c2", "c3"], bench.committed(place), [])


def zombie(bench: Bench) -> Result:
    """Commit with a producer after a second one has taken over its transactional id."""
    place, first = bench.topic(), bench.producer()
    first.begin(place, "a1", "a2")
    second = bench.producer(first.transactional_id)
    second.begin(place, "b1", "b2")
    refusal = _error(lambda: first.call("commit"))
    second.call("commit")
    found = bench.committed(place)
    if not refusal or found != ["b1", "b2"]:
        return Result("broken", f"commit of the first: {refusal or 'ok'}; committed: {' '.join(found)}")
    return Result("holds", f"commit of the first: {refusal}; committed: b1 b2")


def lost_ack(bench: Bench) -> Result:
    """Lose the answer to a Produce request. The library sends the batch again."""
    place, producer = bench.topic(), bench.producer()
    producer.begin(place, "a1")
    with bench.armed(LoseResponseFrame(api="Produce", client_id=producer.name)):
        sent = _error(lambda: producer.send(place, "a2", "a3"))
    ended = _error(lambda: producer.call("abort" if sent else "commit"))
    return _compare([] if sent else ["a1", "a2", "a3"], bench.committed(place), [sent, ended])


def late_batch(bench: Bench) -> Result:
    """Let the first copy of the first of five batches arrive after all five were sent again.

    Each value fills a batch, so a library sends as many batches as it may before it waits for an answer.
    """
    place, producer = bench.topic(), bench.producer()
    producer.begin(place, "a1")
    values = [value.ljust(_LARGE, ".") for value in ("a2", "a3", "a4", "a5", "a6")]
    with bench.armed(HoldFrame(api="Produce", client_id=producer.name, drop_client=True)) as held:
        sent = _error(lambda: producer.send(place, *values))
        answer = _late_answer(held)
    ended = _error(lambda: producer.call("abort" if sent else "commit"))
    found = [value.rstrip(".") for value in bench.committed(place)]
    expected = [] if sent else ["a1", "a2", "a3", "a4", "a5", "a6"]
    mark, observed = _compare(expected, found, [sent, ended])
    return Result(mark, f"answer to the late batch: {answer}; {observed}")


def lost_commit(bench: Bench) -> Result:
    """Lose the answer to a commit. The library repeats the commit, or reports that it does not know."""
    place, producer = bench.topic(), bench.producer()
    producer.begin(place, "a1", "a2")
    with bench.armed(LoseResponseFrame(api="EndTxn", client_id=producer.name)):
        ended = _error(lambda: producer.call("commit"))
    return _compare(["a1", "a2"], bench.committed(place), [ended])


def late_abort(bench: Bench) -> Result:
    """Let the first copy of an abort arrive in the next transaction, which is then committed.

    That transaction then adds another partition. In the same partition, the broker would notice that the
    transaction has ended.
    """
    place, other, producer = bench.topic(), bench.topic(), bench.producer()
    producer.begin(place, "a1")
    hold = HoldFrame(api="EndTxn", client_id=producer.name, drop_client=True)
    with bench.armed(hold) as held:
        if refusal := _error(lambda: producer.call("abort")):
            return Result("stopped", f"abort after a cut connection: {refusal}")
        producer.begin(place, "b1")
        answer = _late_answer(held)
        errors = [_error(lambda: producer.send(other, "b2")), _error(lambda: producer.call("commit"))]
    found = bench.committed(place) + bench.committed(other)
    observed = f"answer to the late abort: {answer}; committed: {' '.join(found) or 'nothing'}"
    if reported := [error for error in errors if error]:
        return Result("stopped" if found in ([], ["b1", "b2"]) else "broken", f"{observed}; {reported[0]}")
    return Result("holds" if found == ["b1", "b2"] else "exposed", observed)


def stale_member(bench: Bench) -> Result:
    """Commit a position with the metadata of a membership that has ended."""
    return _stale(bench, with_metadata=True)


def stale_group(bench: Bench) -> Result:
    """Commit a position of a group that has another member by now, and name the group only."""
    return _stale(bench, with_metadata=False)


def _stale(bench: Bench, *, with_metadata: bool) -> Result:
    source, sink, group = bench.topic(), bench.topic(), f"{bench.name}-group"
    direct = bench.cluster.bootstrap(BrokerListener.DIRECT)
    if with_metadata:
        bench.former_member("member", direct, group, source[0])
    with membership(direct, group, source[0]):
        producer = bench.producer()
        producer.begin(sink, "a1")
        words = [group, *source, _POSITION, *(["member"] if with_metadata else [])]
        refusal = _error(lambda: producer.call("offset", *words))
        # Some libraries report the refusal only when the transaction ends.
        refusal = refusal or _error(lambda: producer.call("commit"))
        if refusal:
            # After some errors a library refuses the abort as well; the coordinator then aborts in time.
            _error(lambda: producer.call("abort"))
        position, found = bench.position(group, source), bench.committed(sink)
    observed = f"{refusal or 'accepted'}; position: {position}; committed: {' '.join(found) or 'nothing'}"
    if refusal:
        return Result("holds" if position < 0 and not found else "broken", observed)
    return Result("broken" if with_metadata else "exposed", observed)


CASES: Final = (
    Case(
        "commit and abort",
        "Does read_committed return what was committed, and nothing else?",
        commit_and_abort,
    ),
    Case("zombie", "Is a producer refused after another one took over its transactional id?", zombie),
    Case("lost ack", "Is a batch written once if the answer to it is lost?", lost_ack),
    Case(
        "late batch",
        "Are batches in flight written once and in order if the first one arrives again, late?",
        late_batch,
    ),
    Case("lost commit", "Is a transaction committed once if the answer to the commit is lost?", lost_commit),
    Case("late abort", "Is a late copy of an abort refused in the next transaction?", late_abort),
    Case("stale member", "Is a position with the metadata of an ended membership refused?", stale_member),
    Case(
        "stale group",
        "Is a position refused that names the group only, after it has another member?",
        stale_group,
    ),
)


def find_cases(names: tuple[str, ...]) -> tuple[Case, ...]:
    """Return the cases with these names; all if there are no names."""
    if unknown := sorted(set(names) - {case.name for case in CASES}):
        hint = f"cases are {', '.join(case.name for case in CASES)}"
        raise UsageError(f"there is no case {unknown[0]!r} in the matrix", hint)
    return tuple(case for case in CASES if not names or case.name in names)
