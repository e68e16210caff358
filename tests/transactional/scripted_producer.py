"""A transactional producer that makes one call when it is told to, here or in a process that can be frozen.

It makes that call and no other, whatever comes of it: no retry, no abort, no successor. The actors of flows
deal with errors as an application should; here the error is what is looked for.

`python -m tests.transactional.scripted_producer SPEC.json` reads one call a line from its input, such as
["send", 0, 3], and prints the result.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from harness.clients.client import error_of, kafka_error
from harness.clients.client_settings import CLASSIC, settings, transaction_settings
from harness.clients.client_spec import TransactionalSpec, load_spec
from harness.clients.lane_sequences import Lanes
from harness.evidence.history import HistoryWriter
from harness.evidence.record import ABORT, COMMIT, LaneEncoder, Origin

LIMIT_S = 30.0
ANSWER_LIMIT_S = 3 * LIMIT_S
"""A call has a limit of its own, and no case leaves a producer frozen for as long again."""
OK = "ok"


class Answer(NamedTuple):
    """What a call came to: `ok`, or the name of the client library's error with its flags."""

    said: str
    flags: list[str]
    took: float
    why: str = ""


class ScriptedProducer:
    """One transactional producer with a history; no call raises, every call says what came of it."""

    def __init__(self, spec: TransactionalSpec) -> None:
        self.spec = spec
        self.name = spec.client
        self.txn = 0
        self.history = HistoryWriter(Path(spec.history), run=spec.run, client=spec.client, role=spec.kind)
        self.history.producer(
            spec.number,
            [(spec.topic, p) for p in range(spec.partitions)],
            transactional_id=spec.transactional_id,
            timeout_ms=spec.transaction_timeout_ms,
        )
        self._lanes = Lanes(spec.partitions)
        self._encoders = [
            LaneEncoder(spec.run, spec.number, lane, b"x" * spec.payload) for lane in range(spec.partitions)
        ]
        self._strangers: dict[str, Consumer] = {}
        self._refused: list[KafkaError] = []
        self.producer = Producer(
            {
                **transaction_settings(spec.transactional_id, spec.transaction_timeout_ms, spec.settings),
                # What the library has to say is in the answers.
                "bootstrap.servers": spec.bootstrap,
                "client.id": spec.client,
                "log_level": 0,
            }
        )

    def init(self, limit: float = LIMIT_S) -> Answer:
        op = self.history.invoke("init", producer=self.spec.number)
        return self._call(op, partial(self.producer.init_transactions, limit))

    def begin(self) -> Answer:
        self.txn += 1
        self._lanes.begin()
        op = self.history.invoke("begin", producer=self.spec.number, txn=self.txn)
        return self._call(op, self.producer.begin_transaction)

    def send(self, lane: int, count: int = 1, outcome: str = COMMIT) -> Answer:
        """Hand over records and wait for their delivery."""
        handed = self.hand_over(lane, count, outcome)
        return handed if handed.said != OK else self.flush()

    def hand_over(self, lane: int, count: int = 1, outcome: str = COMMIT) -> Answer:
        """Hand over records and do not wait."""
        first = self._lanes.take(lane, count)
        return self._produce(lane, first, self._encoders[lane].batch(first, count, self.txn, outcome))

    def hand_over_output(self, lane: int, origin: Origin, outcome: str = COMMIT) -> Answer:
        """Hand over the output of one input."""
        seq = self._lanes.take(lane, 1)
        return self._produce(lane, seq, [self._encoders[lane].output(seq, self.txn, outcome, origin)])

    def _produce(self, lane: int, first: int, values: list[bytes]) -> Answer:
        started = time.monotonic()
        try:
            for seq, value in enumerate(values, first):
                known = self._lanes.on_delivery(lane, seq)
                self.producer.produce(
                    self.spec.topic, value, partition=lane, on_delivery=partial(self._delivered, known)
                )
        except KafkaException as exception:
            return _answer(kafka_error(exception), started)
        return Answer(OK, [], 0.0)

    def _delivered(self, known: Callable[..., None], error: KafkaError | None, message: Any) -> None:
        known(error, message)
        if error is not None:
            self._refused.append(error)

    def flush(self) -> Answer:
        """Wait until nothing is in flight; a record that was not delivered says why."""
        started = time.monotonic()
        try:
            self.producer.flush(LIMIT_S)
        except KafkaException as exception:
            return _answer(kafka_error(exception), started)
        except SystemError as error:  # confluent-kafka calls back although a fatal error's exception is set
            return _answer(kafka_error(cast(KafkaException, error.__cause__)), started)
        refused, self._refused = self._refused, []
        return _answer(next(iter(refused), None), started)

    def offsets(self, group: str, topic: str, partition: int, offset: int, metadata: object = None) -> Answer:
        """Add a group's position; without metadata in the name of a consumer that never subscribed."""
        metadata = self._strangers_metadata(group) if metadata is None else metadata
        op = self.history.invoke(
            "send_offsets",
            producer=self.spec.number,
            txn=self.txn,
            group=group,
            offsets=[(topic, partition, offset)],
        )
        places = [TopicPartition(topic, partition, offset)]
        return self._call(op, lambda: self.producer.send_offsets_to_transaction(places, metadata, LIMIT_S))

    def _strangers_metadata(self, group: str) -> object:
        config = {**settings(CLASSIC), "bootstrap.servers": self.spec.bootstrap, "log_level": 0}
        if group not in self._strangers:
            self._strangers[group] = Consumer({**config, "group.id": group})
        return self._strangers[group].consumer_group_metadata()

    def commit(self, limit: float = LIMIT_S) -> Answer:
        return self._end("commit", partial(self.producer.commit_transaction, limit))

    def abort(self, limit: float = LIMIT_S) -> Answer:
        return self._end("abort", partial(self.producer.abort_transaction, limit))

    def whole(self, sends: dict[int, int], *, commits: bool = True) -> Answer:
        """One transaction from its begin to its end: records by lane."""
        begun = self.begin()
        if begun.said != OK:
            return begun
        for lane, count in sends.items():
            self.hand_over(lane, count, COMMIT if commits else ABORT)
        self.flush()
        return self.commit() if commits else self.abort()

    def _end(self, f: str, call: Callable[[], object]) -> Answer:
        op = self.history.invoke(f, producer=self.spec.number, txn=self.txn, sent=self._lanes.sent())
        return self._call(op, call, acked=self._lanes.acked)

    def _call(self, op: int, call: Callable[[], object], acked: Callable[[], Any] = tuple) -> Answer:
        started = time.monotonic()
        try:
            call()
        except KafkaException as exception:
            error = kafka_error(exception)
            self.history.info(op, error_of(error))
            return _answer(error, started)
        self.history.ok(op, acked=acked())
        return _answer(None, started)

    def close(self) -> None:
        """End the history; what is open stays open."""
        for stranger in self._strangers.values():
            stranger.close()
        self.producer.purge()
        self.history.close()


def _answer(error: KafkaError | None, started: float) -> Answer:
    took = round(time.monotonic() - started, 3)
    if error is None:
        return Answer(OK, [], took)
    return Answer(error.name(), error_of(error).flags, took, error.str())


class ScriptedProcess:
    """The same in a process of its own."""

    def __init__(self, spec: TransactionalSpec, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.mark = str(folder / "spec.json")
        self.name = spec.client
        spec.save(Path(self.mark))
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.transactional.scripted_producer", self.mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
        )
        self.pid = self._process.pid

    def tell(self, call: str, *arguments: object) -> None:
        """Ask for a call; `hear` waits for what comes of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([call, *arguments]) + "\n")

    def hear(self) -> Answer:
        """What came of the last call."""
        assert self._process.stdout is not None
        # It says one line for each call, so nothing of an answer can be buffered here already.
        there, _, _ = select.select([self._process.stdout], [], [], ANSWER_LIMIT_S)
        assert there, f"the producer has said nothing for {ANSWER_LIMIT_S:g} s: see {self._log.name}"
        line = self._process.stdout.readline()
        assert line, f"the producer has ended: see {self._log.name}"
        return Answer(*json.loads(line))

    def __call__(self, call: str, *arguments: object) -> Answer:
        self.tell(call, *arguments)
        return self.hear()

    def close(self) -> None:
        """End it, whatever its state."""
        self._process.kill()
        self._process.communicate()
        self._log.close()


def main(path: str) -> None:
    spec = load_spec(Path(path))
    assert isinstance(spec, TransactionalSpec)
    told = ScriptedProducer(spec)
    for line in sys.stdin:
        call, *arguments = json.loads(line)
        print(json.dumps(getattr(told, call)(*arguments)), flush=True)
    told.close()


if __name__ == "__main__":
    main(sys.argv[1])
