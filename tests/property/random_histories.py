"""Random histories of one or two clients, correct at first, and then with up to three corruptions."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Line = dict[str, Any]
STEP_NS = 1_000


def draw_histories(draw: random.Random, *, offsets: bool = True, corrupt: bool = True) -> dict[str, bytes]:
    """Return the histories of one or two clients. `offsets`: acknowledgements have offsets."""
    files = {}
    number = 1
    for client in range(draw.choice((1, 1, 2))):
        writer = _Client(draw, f"c{client}", number, offsets=offsets)
        number += len(writer.producers)
        lines = writer.lines
        if corrupt and draw.random() < 0.7:
            for _ in range(draw.choice((1, 1, 1, 2, 3))):
                draw.choice(CORRUPTIONS)(draw, lines)
        files[writer.name] = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return files


class _Client:
    """One client that writes a correct history with one or two producers."""

    def __init__(self, draw: random.Random, name: str, number: int, *, offsets: bool) -> None:
        self.draw = draw
        self.name = name
        self.offsets = offsets
        self.ops = 0
        self.waiting: list[Line] = []
        self.lines: list[Line] = []
        opening = {"type": "open", "format": 1, "run": "r", "client": name, "role": "producer"}
        self.write({**opening, "host": "h", "pid": 1, "clock": "c"})
        self.producers = {
            number + n: draw.choice((f"id-{number + n}", None)) for n in range(draw.choice((1, 1, 2)))
        }
        self.lanes = {producer: draw.choice((1, 2, 3)) for producer in self.producers}
        self.next = {(p, lane): 0 for p, count in self.lanes.items() for lane in range(count)}
        self.txn = dict.fromkeys(self.producers, 0)
        for producer in self.producers:
            self.declare(producer)
        self.named = len(self.producers) > 1 or draw.random() < 0.8
        for _ in range(draw.randrange(1, 9)):
            self.step()
        for answer in self.waiting:
            if draw.random() < 0.7:
                self.write(answer)
        if draw.random() < 0.7:
            self.write({"type": "close", "reason": "done"})

    def write(self, line: Line) -> None:
        at = (len(self.lines) + 1) * STEP_NS
        self.lines.append({**line, "mono": at, "wall": at})

    def declare(self, producer: int) -> None:
        lanes = [[f"t{producer}", lane] for lane in range(self.lanes[producer])]
        ident = {"transactional_id": self.producers[producer]} if self.producers[producer] else {}
        self.write({"type": "producer", "producer": producer, "lanes": lanes, **ident})

    def request(self, f: str, producer: int, **fields: Any) -> int:
        op, self.ops = self.ops, self.ops + 1
        named = {"producer": producer} if self.named else {}
        self.write({"type": "invoke", "f": f, "op": op, **named, **fields})
        return op

    def answer(self, op: int, f: str, kind: str, **fields: Any) -> None:
        if kind == "none":
            return
        line = {"type": kind, "f": f, "op": op, **fields}
        # A client with several requests in flight may write the answers later, and in another order.
        if f == "send" and self.draw.random() < 0.3:
            self.waiting.insert(self.draw.randrange(len(self.waiting) + 1), line)
        else:
            self.write(line)

    def take(self, producer: int) -> list[list[int]]:
        sent = []
        for lane in range(self.lanes[producer]):
            count = self.draw.choice((0, 1, 2, 3, 5))
            if count:
                first = self.next[producer, lane]
                self.next[producer, lane] = first + count
                sent.append([lane, first, first + count - 1])
                if count > 2 and self.draw.random() < 0.2:
                    sent[-1:] = [[lane, first, first + 1], [lane, first + 2, first + count - 1]]
        return sent

    def step(self) -> None:
        draw = self.draw
        producer = draw.choice(list(self.producers))
        kind = draw.random()
        if kind < 0.15:
            f = draw.choice(("poll", "flush", "restore"))
            op = self.request(f, producer)
            self.answer(op, f, draw.choice(("ok", "info", "none")))
        elif kind < 0.2:
            self.lanes[producer] += 1
            self.next[producer, self.lanes[producer] - 1] = 0
            self.declare(producer)
        elif self.producers[producer] is None:
            self.send(producer)
        else:
            self.transact(producer)

    def send(self, producer: int) -> None:
        draw, sent = self.draw, self.take(producer)
        op = self.request("send", producer, sent=sent)
        kind = draw.choice(("ok", "ok", "info", "info", "fail", "none"))
        fields: Line = {}
        if kind == "ok":
            fields = self.acked(sent)
        elif kind == "info":
            reports = [self.part(row) for row in sent if draw.random() < 0.7]
            acked = [row for row in reports if draw.random() < 0.5]
            failed = [row for row in reports if row not in acked]
            fields = {"acked": [[*row, self.offset()] for row in acked], "failed": failed}
            if len(sent) > 1 and sent[0][0] == sent[1][0] and draw.random() < 0.5:
                fields = {"acked": [[sent[0][0], sent[0][1], sent[1][2], self.offset()]]}
        self.answer(op, "send", kind, **fields)

    def part(self, row: list[int]) -> list[int]:
        first = self.draw.randint(row[1], row[2])
        return [row[0], first, self.draw.randint(first, row[2])]

    def offset(self) -> int:
        return self.draw.randrange(100) if self.offsets and self.draw.random() < 0.7 else -1

    def acked(self, sent: list[list[int]]) -> Line:
        return {"acked": [[*self.part(row), self.offset()] for row in sent if self.draw.random() < 0.6]}

    def transact(self, producer: int) -> None:
        draw = self.draw
        self.txn[producer] += 1
        txn = {"txn": self.txn[producer]}
        if draw.random() < 0.7:
            self.answer(self.request("begin", producer, **txn), "begin", draw.choice(("ok", "info", "none")))
            if draw.random() < 0.1:
                return
        sent = self.take(producer)
        ends = draw.choice(
            (
                ("commit",),
                ("commit",),
                ("abort",),
                ("abandon",),
                ("commit", "commit"),
                ("commit", "abort"),
                ("abort", "abort"),
                ("commit", "abandon"),
                ("abort", "abandon"),
            )
        )
        for n, f in enumerate(ends):
            listed = {"sent": sent} if not n or draw.random() < 0.5 else {}
            op = self.request(f, producer, **txn, **listed)
            last = n == len(ends) - 1
            kinds = ("ok", "ok", "info", "fail", "none") if last else ("info", "info", "fail", "none")
            kind = "ok" if f == "abandon" else draw.choice(kinds)
            self.answer(op, f, kind, **(self.acked(sent) if kind in ("ok", "info") else {}))


# Corruptions. Each changes the lines of one history in place.


def _some(draw: random.Random, lines: list[Line], *types: str) -> Line | None:
    found = [line for line in lines if line["type"] in types]
    return draw.choice(found) if found else None


def _listing(draw: random.Random, lines: list[Line]) -> list[int] | None:
    found = [row for line in lines for row in line.get("sent", [])]
    return draw.choice(found) if found else None


def drop_request(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "invoke"):
        lines.remove(line)


def drop_operation(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "invoke"):
        lines[:] = [other for other in lines if other.get("op", -1) != line["op"]]


def drop_answer(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "ok", "fail", "info"):
        lines.remove(line)


def drop_end(draw: random.Random, lines: list[Line]) -> None:
    del lines[max(3, len(lines) - draw.randrange(1, 5)) :]


def repeat_answer(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "ok", "fail", "info"):
        kind = draw.choice(("ok", "fail", "info", line["type"]))
        lines.insert(draw.randrange(lines.index(line) + 1, len(lines) + 1), {**line, "type": kind})


def early_answer(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "ok", "fail", "info"):
        asks = [i for i, other in enumerate(lines) if other["type"] == "invoke" and other["op"] == line["op"]]
        if asks:
            lines.remove(line)
            if draw.random() < 0.5:
                lines.insert(max(asks[0] - 1, 1), line)
            else:
                lines.insert(asks[0] + 1, {**line, "mono": lines[asks[0]]["mono"] - 1})


def other_operation(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "invoke", "ok", "info"):
        line["op"] = draw.randrange(12)


def other_name(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "ok", "fail", "info"):
        line["f"] = draw.choice(("poll", "commit", "send"))


def other_answer(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "ok", "fail", "info"):
        line["type"] = draw.choice(("ok", "fail", "info"))


def gap_in_lane(draw: random.Random, lines: list[Line]) -> None:
    if row := _listing(draw, lines):
        row[1] += draw.choice((1, 2, -1))


def shift_lane(draw: random.Random, lines: list[Line]) -> None:
    if row := _listing(draw, lines):
        row[1], row[2] = row[1] + 3, row[2] + 3


def other_lane(draw: random.Random, lines: list[Line]) -> None:
    if row := _listing(draw, lines):
        row[0] = draw.choice((0, 1, 7, -1, 100_000))


def high_sequence(draw: random.Random, lines: list[Line]) -> None:
    if row := _listing(draw, lines):
        if draw.random() < 0.5:
            row[2] = 10**12 + draw.randrange(5)
        else:
            row[1:] = [10**12 + 1, 10**12 + 3]


def unlisted(draw: random.Random, lines: list[Line]) -> None:
    if (line := _some(draw, lines, "invoke")) and line.get("sent"):
        line["sent"].pop(draw.randrange(len(line["sent"])))


def same_number(draw: random.Random, lines: list[Line]) -> None:
    """Give two neighbouring transactions of a producer the same number."""
    numbers = sorted({line["txn"] for line in lines if "txn" in line})
    if numbers:
        chosen = draw.choice(numbers)
        for line in lines:
            if line.get("txn") == chosen:
                line["txn"] = chosen - 1 if draw.random() < 0.9 else chosen


def no_number(draw: random.Random, lines: list[Line]) -> None:
    ends = [line for line in lines if line.get("f") in ("commit", "abort") and "txn" in line]
    if ends:
        draw.choice(ends).pop("txn")


def send_instead(draw: random.Random, lines: list[Line]) -> None:
    """List the records of a transaction by a send."""
    ends = [line for line in lines if line.get("f") in ("commit", "abort") and line["type"] == "invoke"]
    if ends:
        end = draw.choice(ends)
        for line in lines:
            if line.get("op") == end["op"]:
                line["f"] = "send"


def end_again(draw: random.Random, lines: list[Line]) -> None:
    """End a transaction once more, as the last operation."""
    ends = [line for line in lines if line.get("f") in ("commit", "abort") and line["type"] == "invoke"]
    if ends:
        op = max(line.get("op", -1) for line in lines) + 1
        f = draw.choice(("abandon", "abandon", "abort", "commit"))
        end = {**draw.choice(ends), "f": f, "op": op, "mono": 10**6, "wall": 10**6}
        lines += [end, {"type": "ok", "f": f, "op": op, "mono": 10**6, "wall": 10**6}]


def no_producer(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "invoke"):
        line.pop("producer", None)


def other_declaration(draw: random.Random, lines: list[Line]) -> None:
    if line := _some(draw, lines, "producer"):
        change: Line = draw.choice(
            (
                {"idempotent": False},
                {"transactional_id": "other"},
                {"lanes": [["elsewhere", 0], *line["lanes"][1:]]},
                {"lanes": line["lanes"][:1]},
            )
        )
        lines.insert(draw.randrange(2, len(lines) + 1), {**line, **change})


def other_report(draw: random.Random, lines: list[Line]) -> None:
    """Change a delivery report, so that it may cover other records, or contradict another report."""
    reports = [line for line in lines if line.get("acked") or line.get("failed")]
    if reports:
        line = draw.choice(reports)
        rows = line.get("acked") or line["failed"]
        row = draw.choice(rows)
        row[2] += draw.choice((1, 2, 4))
        if draw.random() < 0.5:
            line.setdefault("failed", []).append([row[0], row[1], row[2]])


def repeated_listing(draw: random.Random, lines: list[Line]) -> None:
    """List records a second time, in another operation."""
    asks = [line for line in lines if line["type"] == "invoke" and "sent" in line]
    if row := _listing(draw, lines):
        draw.choice(asks)["sent"].append(list(row))


CORRUPTIONS: list[Callable[[random.Random, list[Line]], None]] = [
    drop_request,
    drop_operation,
    drop_answer,
    drop_end,
    repeat_answer,
    early_answer,
    other_operation,
    other_name,
    other_answer,
    gap_in_lane,
    shift_lane,
    other_lane,
    high_sequence,
    unlisted,
    same_number,
    no_number,
    no_producer,
    send_instead,
    end_again,
    other_declaration,
    other_report,
    repeated_listing,
]
