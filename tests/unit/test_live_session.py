"""A run on a live cluster from lock to clearing: one at a time, and nothing but its own is deleted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cluster.live.cluster import LiveCluster
from harness.cluster.live.file import ClusterPart, LimitsPart, LinksPart, LiveFile, NodesPart, ProxyPart
from harness.cluster.state import State
from harness.errors import ExitCode, HarnessError, RefusedError
from harness.live import session as running
from harness.live.preflight import Consent, check_left_over, foreign_moves
from harness.live.session import Session, execute
from harness.plan import Plan, draw
from harness.scenario import Scenario, load
from harness.units import Duration, Rate, Size
from harness.wire import processes
from harness.wire.admin import Metadata, PartitionInfo
from harness.wire.processes import Found
from harness.wire.protocol import KafkaAnswerError

ID = "4L6g3nShT-eMCtK--X86sw"
FILE = LiveFile(
    cluster=ClusterPart(id=ID, bootstrap=["127.0.0.1:1"], prefix="eos-chaos-"),
    limits=LimitsPart(
        deadline=Duration(60), bytes_per_second=Rate(10**6), storage=Size(10**8), abort_file="/no/such/file"
    ),
    links=LinksPart(toxiproxy="start"),
    proxy=[ProxyPart(broker=0, listen="127.0.0.1:2", upstream="127.0.0.1:1")],
    nodes=NodesPart(kill="true", start="true"),
)
VIEW = Metadata(ID, frozenset({0, 7}), (), {0: ("127.0.0.1", 1), 7: ("127.0.0.1", 3)})
TOPIC, GROUP = "eos-chaos-orders.ab12cd34", "eos-chaos-billing.ab12cd34"
KILL = '[[fault]]\nfault = "kill"\ntarget = "kafka-7"\nat = "1s"\n'


class Brokers:
    """What the brokers of a test say: the topics that there are, and how deleting a group ends."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.group_codes: list[int] = []
        self.deleted: list[str] = []
        self.holder = 0

    def metadata(self, _: object) -> Any:
        return SimpleNamespace(partitions=[PartitionInfo(t, 0, 0, 0, (0,), (0,)) for t in self.topics])

    def partition(self, topic: str, partition: int) -> PartitionInfo:
        return PartitionInfo(topic, partition, self.holder, 0, (0,), (0,))

    def delete_topics(self, names: list[str]) -> None:
        self.deleted += names
        self.topics = [name for name in self.topics if name not in names]

    def coordinator(self, _kind: str, _name: str) -> int:
        return self.holder

    def call(self, _broker: int, request: Any) -> Any:
        code = self.group_codes.pop(0)
        self.deleted += request.groups_names if code in (0, 69) else []
        return SimpleNamespace(results=[SimpleNamespace(error_code=code)])


class Observed(LiveCluster):
    """A cluster whose Toxiproxy is only counted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FILE, State(folder / "state"), VIEW)
        self.brokers_say = Brokers()
        self.admin = cast(Any, self.brokers_say)
        self.proxied: list[str] = []

    def start_proxies(self) -> None:
        self.proxied.append("start")

    def end_proxies(self) -> None:
        self.proxied.append("end")


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observed:
    """A live cluster of two brokers, 0 and 7, that whoever attaches gets."""
    found = Observed(tmp_path)
    monkeypatch.setattr(running, "attach", lambda _file, _state: found)
    monkeypatch.setattr(running, "beware", lambda: None)
    return found


def planned(folder: Path, faults: str = "") -> tuple[Scenario, Plan]:
    path = folder / "one.toml"
    path.write_text('[scenario]\nname = "one"\nshows = "x"\n[[workload]]\nkind = "idempotent"\n' + faults)
    loaded = load(path)
    return loaded, draw(loaded, 1)


def do(theirs: Observed, folder: Path, *, keep: bool = False) -> Any:
    session = Session(FILE, theirs.state, Consent(ID), keep)
    return execute(session, *planned(folder), folder / "runs", listeners=list, report=lambda _: None)


def ready(monkeypatch: pytest.MonkeyPatch, folder: Path, ended: Any) -> None:
    """Let every run be accepted, and do what the test says."""
    made = SimpleNamespace(scenario=planned(folder)[0], again="", directory=SimpleNamespace(path=folder))
    monkeypatch.setattr(running, "_check", lambda *_: None)
    monkeypatch.setattr(running, "make_run", lambda *_: made)
    monkeypatch.setattr(running, "_guarded", ended)


def test_a_second_run_is_refused_before_it_could_end_anything_of_the_first(
    theirs: Observed, tmp_path: Path
) -> None:
    theirs.made.note_topic(TOPIC)
    theirs.brokers_say.topics = [TOPIC]
    first = State(theirs.state.path)
    with first.locked("run first"), pytest.raises(RefusedError, match="`eos run first`"):
        do(theirs, tmp_path)
    assert theirs.proxied == []
    assert theirs.brokers_say.deleted == []
    assert theirs.made.topics() == [TOPIC]


def test_the_lock_is_held_until_all_is_deleted_and_does_not_refuse_the_run_itself(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another() -> None:
        with pytest.raises(RefusedError, match="`eos run one`"), State(theirs.state.path).locked("heal"):
            pytest.fail("two hold the cluster")

    def ended(*_: object) -> str:
        with theirs.locked("run one"):  # as the run does
            another()
        another()
        return "its outcome"

    monkeypatch.setattr(theirs, "end_proxies", another)
    ready(monkeypatch, tmp_path, ended)
    assert do(theirs, tmp_path) == "its outcome"
    with State(theirs.state.path).locked("heal"):
        pass


def test_what_one_run_kept_no_other_deletes(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str) -> Any:
        def ended(*_: object) -> str:
            theirs.made.note_topic(name)
            theirs.brokers_say.topics.append(name)
            return name

        return ended

    ready(monkeypatch, tmp_path, made(TOPIC))
    do(theirs, tmp_path, keep=True)
    ready(monkeypatch, tmp_path, made("eos-chaos-orders.ffffffff"))
    do(theirs, tmp_path)
    assert theirs.brokers_say.topics == [TOPIC]


def test_a_toxiproxy_that_is_interrupted_while_it_starts_is_ended(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(theirs, "start_proxies", interrupted)
    with pytest.raises(KeyboardInterrupt):
        do(theirs, tmp_path)
    assert theirs.proxied == ["end"]


def test_a_run_that_was_killed_between_faults_keeps_the_next_one_away(
    theirs: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_left_over(theirs)
    theirs.made.note_topic(TOPIC)
    check_left_over(theirs)  # it was killed before the topic was there
    theirs.brokers_say.topics = [TOPIC]
    theirs.made.note_groups([GROUP])
    with pytest.raises(RefusedError, match="2 topics and groups were not deleted") as found:
        check_left_over(theirs)
    assert TOPIC in found.value.message
    assert "eos heal --cluster" in found.value.hint
    theirs.made.keep()
    monkeypatch.setattr(processes, "find", lambda mark: [Found(1, f"{mark}x")] * 2)
    with pytest.raises(RefusedError, match="2 processes of clients still run"):
        check_left_over(theirs)


def test_a_group_is_deleted_once_nobody_is_in_it(theirs: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.waits.time.sleep", lambda _: None)
    theirs.made.note_groups([GROUP, "eos-chaos-other.ab12cd34"])
    theirs.brokers_say.group_codes = [68, 14, 0, 69]
    assert theirs.made.delete_groups() == [GROUP, "eos-chaos-other.ab12cd34"]
    assert theirs.brokers_say.deleted == [GROUP, "eos-chaos-other.ab12cd34"]
    assert theirs.made.groups() == []


def test_a_group_that_may_not_be_deleted_is_told_and_stays_noted(theirs: Observed) -> None:
    theirs.made.note_groups([GROUP])
    theirs.brokers_say.group_codes = [30]
    with pytest.raises(HarnessError, match="GroupAuthorizationFailed"):
        theirs.made.delete_groups()
    assert theirs.made.groups() == [GROUP]


def test_heal_deletes_topics_and_groups(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "load_live", lambda _: FILE)
    monkeypatch.setattr(running, "heal", lambda *_: 1)
    theirs.made.note_topic(TOPIC)
    theirs.brokers_say.topics = [TOPIC]
    theirs.made.note_groups([GROUP])
    theirs.brokers_say.group_codes = [0]
    told: list[str] = []
    assert running.heal_live(tmp_path / "live.toml", theirs.state, told.append) == 3
    assert told == [f"deleted topic {TOPIC}", f"deleted group {GROUP}"]
    assert running.heal_live(tmp_path / "live.toml", theirs.state, told.append) == 1


@pytest.mark.parametrize(
    ("code", "exit_code"), [(29, ExitCode.REFUSED), (44, ExitCode.REFUSED), (7, 2), (38, 2)]
)
def test_only_a_missing_right_and_a_policy_are_a_refusal(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, exit_code: int
) -> None:
    def ended(*_: object) -> None:
        raise KafkaAnswerError("creation of topic eos-chaos-orders", code)

    ready(monkeypatch, tmp_path, ended)
    with pytest.raises(HarnessError, match="creation of topic") as found:
        do(theirs, tmp_path)
    assert found.value.exit_code == exit_code
    assert ("rights" in found.value.hint) == (exit_code is ExitCode.REFUSED)


@pytest.mark.parametrize(
    "error", [TimeoutError("timed out"), EOFError("closed"), KafkaAnswerError("groups", 14)]
)
def test_brokers_that_cannot_say_what_would_move_are_a_refusal(
    theirs: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def silent(*_: object) -> None:
        raise error

    monkeypatch.setattr(theirs.brokers_say, "call", silent)
    with pytest.raises(RefusedError, match="would move could not be asked") as found:
        foreign_moves(theirs, planned(tmp_path, KILL)[1])
    assert found.value.hint == "try again when the brokers answer"


def test_broker_0_is_a_broker_and_none_is_none(theirs: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cluster.cluster.ROLE_LIMIT_S", 0)
    assert theirs.leader_of(TOPIC, 0) == theirs.group_coordinator(GROUP) == theirs.txn_coordinator("x") == 0
    theirs.brokers_say.holder = -1
    with pytest.raises(HarnessError, match="a leader of"):
        theirs.leader_of(TOPIC, 0)
