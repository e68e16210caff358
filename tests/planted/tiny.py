"""Tiny histories and logs as text, so that a reader can follow each case on paper.

A history has one event per line. Events are 1 s apart unless a line starts with `@seconds`; `@3-5` is an
operation that was requested at 3 s and answered at 5 s. The answers are ok, fail, info (unclear), and none
(the client was killed before an answer arrived).

    p1 commit ok a:0-9 b:0-4      producer p1 commits a transaction with sequences 0-9 in a and 0-4 in b
    p1 abort info a:10-19         p1 requests an abort, and the answer is unclear
    p1 commit ok again            p1 requests the commit of the same transaction once more
    p1 begin                      p1 begins a transaction; a history may stop here
    p1 abandon none a:0-4         p1 gives up a transaction without requesting its commit or abort
    p2 send ok a:0-4>100          p2 sends without a transaction; the ack has offset 100 (may be left out)
    p2 send info a:0-9 +a:0-4 -a:9    the answer is unclear; + certainly written, - certainly not written
    p1 init ok                    p1 got its producer id; `@1-90 p1 init ok` got it after 89 s
    p1 offsets i:7                p1 adds offset 7 of input i to the transaction that it ends next
    r1 read a@100 p1:0-4          during the run, reader r1 got sequences 0-4 of p1, the first at offset 100
                                  (with read_uncommitted if the settings of r1 have this isolation)
    r1 read a@5 p1:5 b@3 p1:3     one poll with records of two partitions, or of two places of one partition
    r1 poll                       r1 begins the poll that its next read answers; `poll info` ends it unclearly
    r1 assign a@0 b               r1 got a, to read it from offset 0, and b, from the group's position
    r1 revoke a                   r1 no longer has partition a
    r1 seek a@5                   r1 moves its own position; `seek info a@5` has an unclear result
    r1 caught-up a@10             r1 was given all readable records of partition a below offset 10
    look a 10/12                  an observer saw last stable offset 10 and high watermark 12
    group i:7                     an observer saw that the group had committed offset 7 of input i
    fault f1 intent               a stage of fault f1; other stages are bite, no_bite, healed
    p1 commit info!_STATE!fatal   the error of an answer, and its flags
    fault f1 intent crash_client p1    the same, with the kind of the fault and the client that is its target
    p1 close                      p1 ended normally
    p1 close gave up: fenced      the closing line of p1 has another reason than `done`
    client p1 stopped             the run's list of clients: p1 ended after a stop request; other ends are
                                  started (no end recorded), exit 1 (by itself), crash f1, retire f1, killed
                                  (a case with such a line promises the list, and has the run's own histories)
    skipped aborted: no broker    the run skipped phases for this reason

A log lists the readable records of each partition, offset by offset:

    p1:0-9          ten records
    .               an offset without a readable record (a marker or an aborted record)
    ?               a foreign record
    p9:0<p1:4       an output of a pipeline, made from the input of p1 with sequence 4
    p9:0<p1:4/1     the second output of that input; outputs of one input are numbered 0, 1, ...
    p1b:3           a record of p1's lane b, in whichever partition it is listed
    p9:0=3:2/22     a changelog record: key 3 has 2 inputs with sum 22
    p1:0-4~3c       records that carry transaction 3, meant to be committed; `a` to be aborted, `n` neither
    p9:0<p1:4$      an output with the checksum of its input; `!` instead of `$`: with another checksum

A raw log lists everything in a partition, offset by offset. It has the tokens of a log, and these:

    C1  A1          a COMMIT or ABORT marker of producer id 1, which producer p1 has by default
    p1:0-4#7        records that were written under producer id 7; their markers are C7 and A7
    p1:0-4#-1       records that were written without a producer id, and so without a transaction
    p1:5%2          a record whose batch has the sequence 2; by default it is that of the record

The coordinators' logs: `decided` has one decision a line, and `positions` lists the log of the group
coordinators, g, offset by offset. A batch or marker at offset n was written at n + 1 seconds.

    @2.5 A1 a b     after 2.5 s the coordinator decided to abort the transaction of producer id 1 in a and b
    i:5   i:5#7     producer id 1 (7) committed position 5 of input i in its transaction; C1 and A1 as above

The history line `p1 identity 7` means that p1 reported the producer id 7.

A reader is a member of a group if its settings name one: {"r1": {"group": "g"}}.

Partitions: a and b are t-0 and t-1, i is in-0 (a pipeline's input), o is out-0 (its output), c is log-0 (its
changelog).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness.evidence.checkers.consumer_reads import observation_of, reads_of
from harness.evidence.checkers.model import Evidence, Expect, Pipeline
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.client_list import ClientList, ClientRecord, End
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import fold
from harness.evidence.log_audit import (
    CoordinatorLog,
    LoggedBatch,
    LoggedPosition,
    LoggedState,
    Marker,
    PartitionLog,
)
from harness.evidence.observation import AGGREGATE, Findings, Meta, Observation, Spot, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import NONE, Identity, Origin, encode
from harness.evidence.stored_logs import StoredLogs
from harness.kafka.log.batches import ABORT, COMMIT, NO_PRODUCER, Batch
from harness.witness.raw_log import observe_raw, transactions_of

_ENDS: dict[str, End] = {
    "started": "",
    "stopped": "stopped",
    "exit": "by itself",
    "crash": "by a fault",
    "retire": "by a fault",
    "killed": "killed",
}
POSITIONS = ("__consumer_offsets", 0)
LANES = {"a": ("t", 0), "b": ("t", 1), "i": ("in", 0), "o": ("out", 0), "c": ("log", 0)}
NAMES = list(LANES)
SECOND = 1_000_000_000
Line = dict[str, Any]
ChangedLines = Callable[[dict[str, list[Line]]], None]
"""A function that changes the lines of the histories, by client."""


@dataclass
class Tiny:
    """One case: the clients' histories, the readable log, and the settings."""

    history: str
    log: dict[str, str]
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    expect: Expect = field(default_factory=Expect)
    consumed: int | None = None
    finished: int = 0
    complete: bool = True
    hw: dict[str, int] = field(default_factory=dict)
    epochs: list[tuple[str, int, int]] = field(default_factory=list)
    raw: dict[str, str] = field(default_factory=dict)
    """What the raw log of each partition contains; empty if the raw log is no witness of the case."""
    decided: str = ""
    """Decisions of the transaction coordinators. Empty if the run did not store the coordinators' logs."""
    positions: str = ""
    """What the log of the group coordinators contains."""
    unread: list[str] = field(default_factory=list)
    """Logs that the run could not read."""
    late: dict[str, str] = field(default_factory=dict)
    """How late threads woke, by history: `10-75:400 80-90:50` is 400 ms from 10 to 75 s, and so on."""
    change: ChangedLines | None = None
    """Changes the lines of the histories, by client, before they are folded."""

    def evidence(self) -> Evidence:
        """Return the evidence for the checkers: the ledger of the histories, and observations of the log."""
        # Only a stateful pipeline has a lane for its changelog.
        writers = _Writers(self.settings, [LANES[n] for n in NAMES if n != "c" or n in self.log])
        for n, line in enumerate(filter(None, map(str.strip, self.history.splitlines())), start=1):
            writers.event(n, line)
        writers.finish()
        for who, text in self.late.items():
            writers.was_late(who, text)
        if self.change is not None:
            self.change(writers.lines)
        files = [HistoryFile(Path(f"{name}.jsonl"), data) for name, data in writers.files()]
        clients = writers.clients
        ledger = fold(files, clients.started, clients.finished) if clients else fold(files)
        observations = [self._observe("all", None), *map(observation_of, reads_of(ledger))]
        if self.consumed is not None:
            observations.append(self._observe("consumed", self.consumed))
        if "c" in self.log:
            observations.append(self._observe("aggregates", None))
        if self.raw:
            observations.append(self._observe_raw())
        expect = self.expect
        if self.late:
            expect = msgspec.structs.replace(expect, lateness=True)
        if writers.clients is not None:
            expect = msgspec.structs.replace(expect, clients=True)
        logs = self._stored_logs() if self.decided or self.unread else None
        return Evidence(ledger, observations, expect, clients=writers.clients, logs=logs)

    def judge(self) -> Judgement:
        """Return the verdict on this case."""
        return judge(self.evidence())

    def _observe(self, purpose: Any, end: int | None) -> Observation:
        records, windows = Records(), []
        foreign = Findings()
        of = {"all": list(self.log), "consumed": ["i"], "aggregates": ["c"]}
        names = [name for name in self.log if name in of[purpose]]
        for index, name in enumerate(names):
            tokens = _offsets(self.log[name])[: None if end is None else end]
            for offset, token in enumerate(tokens):
                if token == "?":
                    foreign.count += 1
                    foreign.examples.append(Spot(topic="t", partition=0, offset=offset, detail="not ours"))
                elif token != ".":
                    records.add(index, offset, _identity(name, token), self._value(name, token))
            hw = self.hw.get(name, len(tokens))
            topic, partition = LANES[name]
            windows.append(
                Window(topic=topic, partition=partition, start=0, lso=len(tokens), hw=hw, read_to=len(tokens))
            )
        meta = Meta(witness=f"reader-{purpose}", kind="reference", purpose=purpose, complete=self.complete)
        meta.windows, meta.foreign, meta.clock = windows, foreign, "clock"
        meta.finished = self.finished * SECOND
        if purpose == "consumed":
            meta.group, meta.positions = "g", [("in", 0, end or 0)]
        observation = observe(meta, records)
        if purpose == "aggregates":
            observation.aggregates = np.array(_totals(_offsets(self.log["c"])), AGGREGATE)
        spots = [
            Spot(topic=LANES[n][0], partition=LANES[n][1], offset=o, other_offset=b)
            for n, o, b in self.epochs
        ]
        meta.epochs = Findings(compared=len(records), count=len(spots), examples=spots)
        return observation

    def _value(self, name: str, token: str) -> bytes:
        identity = _identity(name, token)
        if token[-1] not in "$!" or identity.origin is None:
            return encode(identity)
        checksum = self._checksums[identity.origin[:3]] ^ (token[-1] == "!")
        return encode(identity, b"%08x" % checksum)

    @cached_property
    def _checksums(self) -> dict[tuple[int, ...], int]:
        """The checksum of each input in the log: by producer, lane and sequence."""
        inputs = [_identity("i", token) for token in _offsets(self.log["i"]) if token not in ".?"]
        return {(i.producer, i.lane, i.seq): zlib.crc32(encode(i)) for i in inputs}

    def _observe_raw(self) -> Observation:
        logs = []
        for name, text in self.raw.items():
            batches = [self._batch(name, *numbered) for numbered in enumerate(_offsets(text))]
            topic, partition = LANES[name]
            open_ones = [t.batches[0].base_offset for t in transactions_of(batches) if t.marker is None]
            hw, stable = self.hw.get(name, len(batches)), min(open_ones, default=len(batches))
            window = Window(topic=topic, partition=partition, start=0, lso=stable, hw=hw, read_to=stable)
            logs.append((window, batches))
        return observe_raw(logs, "r7k2m9qa")

    def _stored_logs(self) -> StoredLogs:
        """Return the stored logs: the raw logs, the positions, and the decisions."""
        logs = [
            PartitionLog(LANES[name], 0, [_logged(self._batch(name, *n)) for n in enumerate(_offsets(text))])
            for name, text in self.raw.items()
        ]
        if self.positions:
            logs.append(self._positions_log())
        states = []
        for line in filter(None, map(str.strip, self.decided.splitlines())):
            at, decision, *names = line.split()
            match = re.fullmatch(r"([CA])(\d+)", decision)
            assert match, f"what is {decision!r}?"
            places = tuple(POSITIONS if name == "g" else LANES[name] for name in names)
            state = "PrepareCommit" if match[1] == "C" else "PrepareAbort"
            producer_id, at_ms = int(match[2]), int(float(at[1:]) * 1000)
            transactional_id = f"id-p{producer_id}"
            states.append(
                LoggedState(len(states), at_ms, transactional_id, producer_id, 0, 60_000, state, places)
            )
        return StoredLogs(
            run="r7k2m9qa",
            partitions=logs,
            coordinators=[
                CoordinatorLog(states, is_whole=not any("__transaction_state" in u for u in self.unread))
            ],
            unread=self.unread,
        )

    def _positions_log(self) -> PartitionLog:
        batches, positions = [], []
        for offset, token in enumerate(self.positions.split()):
            match = re.fullmatch(r"([CA])(\d+)|([io]):(\d+)(?:#(\d+))?", token)
            assert match, f"what is {token!r}?"
            producer_id = int(match[2] or match[5] or 1)
            control = None if match[3] else COMMIT if match[1] == "C" else ABORT
            batches.append(_logged(Batch(offset, offset, producer_id, 0, 0, True, control, (), 0)))
            if match[3]:
                positions.append(LoggedPosition(offset, producer_id, "g", *LANES[match[3]], int(match[4])))
        return PartitionLog(POSITIONS, 0, batches, positions)

    def _batch(self, name: str, offset: int, token: str) -> Batch:
        if match := re.fullmatch(r"([CA])(\d+)", token):
            control = COMMIT if match[1] == "C" else ABORT
            return Batch(offset, offset, int(match[2]), 0, -1, True, control, (), 0)
        text, _, sequence = token.partition("%")
        text, _, pid = text.partition("#")
        identity = _identity(name, text)
        settings = self.settings.get(f"p{identity.producer}", {})
        producer_id = int(pid or identity.producer)
        transactional = settings.get("transactional_id", "") is not None and producer_id != NO_PRODUCER
        values = ((offset, self._value(name, text)),)
        base = int(sequence or identity.seq)
        return Batch(offset, offset, producer_id, 0, base, transactional, None, values)


def _logged(batch: Batch) -> LoggedBatch:
    marker: Marker | None = (
        None if batch.control is None else "commit" if batch.control == COMMIT else "abort"
    )
    fields = batch.base_offset, batch.last_offset, batch.producer_id, batch.epoch, batch.base_sequence
    return LoggedBatch(*fields, batch.transactional, marker, at_ms=(batch.base_offset + 1) * 1000)


def pipeline(outputs: int = 1, changelog: str = "") -> Expect:
    """Return the expectation for a pipeline that reads partition i and writes to partition o."""
    return Expect(pipeline=Pipeline(group="g", inputs=["in"], outputs=outputs, changelog=changelog))


def _totals(tokens: list[str]) -> list[tuple[int, ...]]:
    """Return the last changelog record of each key."""
    totals: dict[int, tuple[int, ...]] = {}
    for offset, token in enumerate(tokens):
        if match := re.search(r"=(\d+):(\d+)/(\d+)$", token):
            key, inputs, total = map(int, match.groups())
            totals[key] = (0, key, inputs, total, offset)
    return list(totals.values())


def _offsets(text: str) -> list[str]:
    tokens = []
    for token in text.split():
        match = re.fullmatch(r"(\w+):(\d+)-(\d+)(\D.*)?", token)
        if match:
            tokens += [f"{match[1]}:{s}{match[4] or ''}" for s in range(int(match[2]), int(match[3]) + 1)]
        else:
            tokens.append(token)
    return tokens


def _identity(partition: str, token: str) -> Identity:
    origin_part = r"(?:<p(\d+):(\d+)(?:/(\d+))?|=[^~]+)?"
    match = re.fullmatch(rf"p(\d+)([abioc]?):(\d+){origin_part}(?:~(\d+)([can]))?[$!]?", token)
    assert match, f"what is {token!r}?"
    origin = Origin(int(match[4]), NAMES.index("i"), int(match[5]), int(match[6] or 0)) if match[4] else None
    lane = NAMES.index(match[2] or partition)
    label = (int(match[7] or 0), match[8] or NONE)
    return Identity("r7k2m9qa", int(match[1]), lane, int(match[3]), *label, origin)


class _Writers:
    """Histories in memory: one writer for each producer, reader and observer."""

    def __init__(self, settings: dict[str, dict[str, Any]], lanes: list[tuple[str, int]]) -> None:
        self.lanes = lanes
        self.lines: dict[str, list[dict[str, Any]]] = {}
        self.ops: dict[str, int] = {}
        self.txn: dict[str, int] = {}
        self.polls: dict[str, int] = {}
        self.settings = settings
        self.clients: ClientList | None = None

    def files(self) -> list[tuple[str, bytes]]:
        encode = msgspec.json.Encoder().encode_lines
        return [(name, encode(lines)) for name, lines in sorted(self.lines.items())]

    def write(self, who: str, at: float, **line: Any) -> None:
        clocks = {"mono": int(at * SECOND), "wall": int(at * SECOND)}
        if who not in self.lines:
            self._open(who)
        self.lines[who].append({**line, **clocks})

    def _open(self, who: str) -> None:
        settings = self.settings.get(who, {})
        role = {"oracle": "observer", "faults": "faults"}.get(who, "producer")
        opening = {"type": "open", "format": 1, "run": "r7k2m9qa", "client": who, "role": role}
        opening |= {"host": "h", "pid": 1, "clock": settings.get("clock", "clock")}
        self.lines[who] = [{**opening, "mono": 0, "wall": 0}]
        if who.startswith("p"):
            declared = {"type": "producer", "producer": int(who[1:]), "lanes": self.lanes}
            declared |= {"transactional_id": f"id-{who}", "mono": 0, "wall": 0}
            declared |= {
                key: value for key, value in settings.items() if key not in ("clock", "group", "isolation")
            }
            self.lines[who].append(declared)

    def was_late(self, who: str, text: str) -> None:
        """Add the record of how late the threads of a process woke, one window a second."""
        last = max(line["mono"] for lines in self.lines.values() for line in lines)
        if who not in self.lines:
            self._open(who)
        spans = [tuple(map(int, re.split("[-:]", span))) for span in text.split()]
        self.lines[who][0]["lateness"] = True
        for second in range(last // SECOND + 1):
            late = next((ms for first, end, ms in spans if first <= second < end), 1) * 1_000_000
            wakes = max(1, SECOND // (100_000_000 + late))
            line = {"type": "lateness", "since": second * SECOND, "mono": (second + 1) * SECOND, "wall": 0}
            line |= {"wakes": wakes, "largest": late, "total": wakes * late}
            self.lines[who].insert(1 + second, line)

    def event(self, n: int, text: str) -> None:
        at, until, words = float(n), n + 0.5, text.split()
        if words[0].startswith("@"):
            first, _, last = words.pop(0)[1:].partition("-")
            at, until = float(first), float(last or first) + 0.001
        who, what, *rest = words
        if who == "look":
            lso, hw = rest[0].split("/")
            self.write("oracle", at, type="sample", bounds=[(*LANES[what], 0, int(lso), int(hw))])
        elif who == "group":
            positions = [(*LANES[w[0]], int(w[2:])) for w in words[1:]]
            self.write("oracle", at, type="sample", group="g", positions=positions)
        elif who == "fault":
            kind, target = (rest[1], f"client({rest[2]})") if rest[1:] else ("kill", "one")
            self.write("oracle", at, type="fault", id=what, stage=rest[0], fault=kind, target=target)
        elif who == "client":
            self._client(what, rest, at)
        elif who == "skipped":
            error = {"code": 0, "name": "SKIPPED", "message": " ".join([what, *rest])}
            op = self.ops["oracle"] = self.ops.get("oracle", -1) + 1
            self.write("oracle", at, type="invoke", f="phases", op=op)
            self.write("oracle", at, type="info", f="phases", op=op, error=error)
        elif what == "close":
            self.write(who, at, type="close", reason=" ".join(rest) or "done")
        elif what == "identity":
            op = self.ops[who] = self.ops.get(who, -1) + 1
            self.write(who, at, type="invoke", f="identity", op=op, producer=int(who[1:]))
            self.write(who, at, type="ok", f="identity", op=op, pid=int(rest[0]), epoch=0)
        elif what in ("poll", "read", "assign", "revoke", "seek", "caught-up"):
            self._consumer(who, what, rest, at, until)
        else:
            self._operation(who, what, rest, at, until)

    def _client(self, name: str, words: list[str], at: float) -> None:
        """Add a client to the run's list of clients."""
        if self.clients is None:
            self.clients = ClientList(run="r7k2m9qa", clock="clock")
        how, detail = words[0], "".join(words[1:])
        end = _ENDS[how]
        number = int(name[1:]) if name.startswith("p") else 0
        record = ClientRecord(name=name, kind="test", producer=number, started=0, ended=end)
        record.at = int(at * SECOND)
        record.exit_code = int(detail) if how == "exit" else 0 if end == "stopped" else None
        record.fault = detail if end == "by a fault" else ""
        self.clients.clients.append(record)

    def finish(self) -> None:
        """Add and close the histories of the run itself, if the case has a list of clients."""
        if self.clients is not None:
            for who in ("oracle", "faults"):
                last = self.lines[who][-1]["mono"] / SECOND if who in self.lines else 0
                self.write(who, last, type="close", reason="done")

    def _operation(self, who: str, what: str, rest: list[str], at: float, until: float) -> None:
        op = self.ops[who] = self.ops.get(who, -1) + 1
        asked: dict[str, Any] = {"type": "invoke", "f": what, "op": op}
        if what in ("commit", "abort", "abandon", "begin", "send", "offsets", "init"):
            asked["producer"] = int(who[1:])
        if what in ("commit", "abort", "abandon", "begin", "offsets"):
            asked["txn"] = self.txn.get(who, 1)
        if what == "offsets":
            offsets = [(*LANES[w[0]], int(w[2:])) for w in rest]
            self.write(who, at, **{**asked, "f": "send_offsets", "group": "g", "offsets": offsets})
            self.write(who, until, type="ok", f="send_offsets", op=op)
            return
        answer, *parts = rest or ["none"]
        again = "again" in parts
        parts = [part for part in parts if part != "again"]
        sent = [_interval(part) for part in parts if part[0] not in "+-"]
        if sent:
            asked["sent"] = [row[:3] for row in sent]
        self.write(who, at, **asked)
        if what in ("commit", "abort", "abandon") and not again:
            self.txn[who] = self.txn.get(who, 1) + 1
        if answer == "none":
            return
        done: dict[str, Any] = {"type": answer.split("!")[0], "f": what, "op": op}
        if "!" in answer:
            _, name, *flags = answer.split("!")
            done["error"] = {"code": 1, "name": name, "flags": flags}
        acked = [_interval(part[1:]) for part in parts if part[0] == "+"]
        acked += [row for row in sent if row[3] >= 0]
        failed = [_interval(part[1:])[:3] for part in parts if part[0] == "-"]
        done |= {"acked": acked} if acked else {}
        done |= {"failed": failed} if failed else {}
        self.write(who, until, **done)

    def _consumer(self, who: str, what: str, rest: list[str], at: float, until: float) -> None:
        if what == "read":
            self._read(who, at, rest)
        elif what == "poll":
            self._poll(who, at)
            if rest and rest[0] != "none":
                self.write(who, until, type=rest[0], f="poll", op=self.polls.pop(who))
        else:
            self._move(who, at, what.replace("-", "_"), rest)

    def _group(self, who: str) -> dict[str, str]:
        group = self.settings.get(who, {}).get("group")
        return {"group": group} if group else {}

    def _poll(self, who: str, at: float) -> None:
        op = self.ops[who] = self.polls[who] = self.ops.get(who, -1) + 1
        isolation = {k: v for k, v in self.settings.get(who, {}).items() if k == "isolation"}
        self.write(who, at, type="invoke", f="poll", op=op, **self._group(who), **isolation)

    def _read(self, who: str, at: float, rest: list[str]) -> None:
        if who not in self.polls:
            self._poll(who, at)
        runs, partition, place = [], "", 0
        for token in _offsets(" ".join(rest)):
            if "@" in token:
                partition, _, offset = token.partition("@")
                place = int(offset)
                continue
            identity = _identity(partition, token)
            runs.append((*LANES[partition], place, identity.producer, identity.lane, identity.seq, 1))
            place += 1
        self.write(who, at, type="ok", f="poll", op=self.polls.pop(who), read=runs)

    def _move(self, who: str, at: float, what: str, rest: list[str]) -> None:
        op = self.ops[who] = self.ops.get(who, -1) + 1
        answer, *rest = rest if rest[0] == "info" else ["ok", *rest]
        offsets = [(*LANES[word[0]], int(word[2:] or -1)) for word in rest]
        self.write(who, at, type="invoke", f=what, op=op, offsets=offsets, **self._group(who))
        self.write(who, at, type=answer, f=what, op=op)


def _interval(text: str) -> tuple[int, int, int, int]:
    match = re.fullmatch(r"([abioc]):(\d+)(?:-(\d+))?(?:>(\d+))?", text)
    assert match, f"what is {text!r}?"
    first = int(match[2])
    return NAMES.index(match[1]), first, int(match[3] or first), int(match[4] or -1)
