"""Columnar reading of usual lines: a history has the same scan as when all its lines are decoded as JSON."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from harness.base.errors import UsageError
from harness.evidence.history import HistoryFile, HistoryWriter
from harness.evidence.ledger import history_scan
from harness.evidence.ledger.history_scan import Scan, scan
from harness.evidence.ledger.line_shapes import MOST_INTERVALS, Lines, read_shapes
from harness.evidence.ledger.usual_lines import read_usual

OPENING = {"type": "open", "format": 1, "run": "r7k2m9qa", "client": "p1", "role": "producer", "host": "h"}
OPENING |= {"pid": 1, "clock": "c", "mono": 0, "wall": 0}
DECLARED = {"type": "producer", "producer": 1, "lanes": [("t", 0), ("t", 1)], "mono": 0, "wall": 0}

COMMIT = (
    b'{"type":"invoke","f":"commit","op":5,"producer":1,"txn":2,"sent":[[0,10,19],[1,4,8]],'
    b'"limit_ms":10000,"mono":12,"wall":1763460000000000000}'
)
BEGIN = b'{"type":"invoke","f":"begin","op":4,"producer":1,"txn":2,"mono":11,"wall":17}'
SEND = b'{"type":"invoke","f":"send","op":6,"producer":1,"sent":[[0,20,20]],"mono":13,"wall":17}'
ANSWER = b'{"type":"ok","f":"send","op":6,"acked":[[0,20,20,123456789012345678]],"mono":14,"wall":17}'
USUAL = (COMMIT, BEGIN, SEND, ANSWER, b'{"type":"ok","f":"abandon","op":0,"mono":0,"wall":0}')


def history(lines: list[bytes], *, torn: bytes = b"") -> HistoryFile:
    opening = [msgspec.json.encode(OPENING), msgspec.json.encode(DECLARED)]
    return HistoryFile(Path("p1.jsonl"), b"\n".join([*opening, *lines, b""]) + torn)


def comparable(scanned: Scan) -> dict[str, Any]:
    """Return the contents of a scan. Codes of operations are numbered by their first appearance."""
    contents = dict(vars(scanned))
    codes = list(dict.fromkeys([*scanned.asks[:, 1].tolist(), *scanned.done[:, 4].tolist()]))
    for name, column in (("asks", 1), ("done", 4)):
        contents[name] = contents[name].copy()
        contents[name][:, column] = [codes.index(code) for code in contents[name][:, column].tolist()]
    return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in contents.items()}


def both(history: HistoryFile, monkeypatch: pytest.MonkeyPatch) -> tuple[object, object]:
    """Return the scan of a history, or its error, with and without the columnar reading."""
    results: list[object] = []
    for is_columnar in (True, False):
        with monkeypatch.context() as patch:
            if not is_columnar:
                patch.setattr(history_scan, "_scan_usual", lambda *_: False)
            try:
                results.append(comparable(scan(history)))
            except UsageError as error:
                results.append(str(error))
    return results[0], results[1]


def test_usual_lines_are_read_without_json() -> None:
    usual = read_usual(b"\n".join([*USUAL, b""]))
    assert usual.rest.tolist() == []
    assert usual.requests.sent.tolist() == [[0, 0, 10, 19], [0, 1, 4, 8], [2, 0, 20, 20]]
    assert usual.requests.txn.tolist() == [2, 2, -1]
    assert usual.answers.acked.tolist() == [[0, 0, 20, 20, 123456789012345678]]


def test_the_lines_of_the_writer_are_usual(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "p1.jsonl", run="r7k2m9qa", client="p1", role="producer") as writer:
        writer.producer(1, [("t", 0), ("t", 1)], transactional_id="x")
        for txn in range(3):
            writer.ok(writer.invoke("begin", producer=1, txn=txn))
            op = writer.invoke("commit", producer=1, txn=txn, sent=[(0, txn, txn), (1, txn, txn)], limit_ms=5)
            writer.ok(op, acked=[(0, txn, txn, 10 + txn), (1, txn, txn, 20 + txn)])
            writer.ok(writer.invoke("send", producer=1, sent=[(0, 9 + txn, 9 + txn)], limit_ms=5))
            writer.ok(writer.invoke("abort", producer=1, txn=txn, limit_ms=5))
            writer.invoke("abandon", producer=1, txn=txn)
    data = (tmp_path / "p1.jsonl").read_bytes()
    usual = read_usual(data)
    rest = [data.splitlines()[i].split(b",")[0] for i in usual.rest.tolist()]
    assert rest == [b'{"type":"open"', b'{"type":"producer"', b'{"type":"close"']
    assert len(usual.requests.sent) == 9
    assert len(usual.answers.acked) == 6


VARIANTS = [
    (b'"mono":12', b'"mono":012'),
    (b'"mono":12', b'"mono":-12'),
    (b'"mono":12', b'"mono": 12'),
    (b'"mono":12', b'"mono":1.2e1'),
    (b'"mono":12', b'"mono":00'),
    (b'"mono":12', b'"mono":"12"'),
    (b'"mono":12', b'"mono":'),
    (b'"op":5', b'"op":999999999999999999'),
    (b'"op":5', b'"op":1000000000000000000'),
    (b'"op":5', b'"op":99999999999999999999'),
    (b'"op":5', b'"op":9999999999999999999'),
    (b'"op":5', b'"op":12345678'),
    (b'"op":5', b'"op":1234567890123456'),
    (b'"op":5', b'"op":null'),
    (b'"wall":1763460000000000000', b'"wall":176346000000000000000000'),
    (b'"wall":1763460000000000000', b'"wall":x'),
    (b'"f":"commit"', b'"f":"commits"'),
    (b'"f":"commit"', b'"f":"comm\\u0069t"'),
    (b'"f":"commit"', b'"f":"init"'),
    (b'"f":"commit"', b'"f":""'),
    (b'"producer":1', b'"producer":null'),
    (b'"producer":1,', b""),
    (b'"txn":2,', b""),
    (b'"txn":2', b'"txn":2,"txn":3'),
    (b"[1,4,8]]", b"[1,4,8]],"),
    (b"[1,4,8]]", b"[1,4,8]"),
    (b"[1,4,8]]", b"[1,4,8,9]]"),
    (b"[1,4,8]]", b"[1,4]]"),
    (b"[1,4,8]]", b"[1,4,8],[]]"),
    (b"[[0,10,19],[1,4,8]]", b"[]"),
    (b"[[0,10,19],[1,4,8]]", b"[" + b",".join([b"[0,1,1]"] * MOST_INTERVALS) + b"]"),
    (b"[[0,10,19],[1,4,8]]", b"[" + b",".join([b"[0,1,1]"] * (MOST_INTERVALS + 1)) + b"]"),
    (b"000}", b"000} "),
    (b"000}", b'000,"limit_ms":5}'),
    (b"000}", b'000,"sent":[[0,1,2]]}'),
    (b"000}", b"000"),
    (b'"limit_ms":10000', b'"limit_ms":-1'),
    (b'"limit_ms":10000', b'"limit_ms":10000,"limit_ms":7'),
    (b'"limit_ms":10000', b'"isolation":"read_committed"'),
    (b'"limit_ms":10000,', b""),
    (b',"limit_ms":10000,"mono":12', b',"mono":12,"limit_ms":10000'),
    (b'{"type"', b' {"type"'),
    (b'"invoke"', b'"invokes"'),
    (b'"invoke","f"', b'"invoke","F"'),
]


@pytest.mark.parametrize(("old", "new"), VARIANTS)
def test_a_line_that_differs_slightly_has_the_same_meaning_as_its_json(
    old: bytes, new: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = COMMIT.replace(old, new, 1)
    assert line != COMMIT
    columnar, plain = both(history([BEGIN, *[COMMIT] * 9, line, SEND, ANSWER]), monkeypatch)
    assert columnar == plain


def test_every_changed_byte_has_the_same_meaning_as_its_json(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    for line in USUAL:
        for at in range(len(line)):
            changed = line[:at] + bytes([rng.choice(b'0 9a,"[]}{:-\x80\n')]) + line[at + 1 :]
            columnar, plain = both(history([*USUAL, changed, *USUAL], torn=line[:at]), monkeypatch)
            assert columnar == plain, changed


def test_usual_and_other_lines_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    others = [
        b'{"type":"invoke","f":"send_offsets","op":7,"group":"g","offsets":[["t",0,5]],"mono":15,"wall":17}',
        b'{"type":"ok","f":"send_offsets","op":7,"mono":16,"wall":17}',
        b'{"type":"info","f":"commit","op":5,"error":{"code":1,"name":"N","text":"t"},"mono":16,"wall":17}',
        b'{"type":"ok","f":"send","op":6,"acked":[[0,20,20,-1]],"mono":14,"wall":17}',
        b'{"type":"invoke","mono":11,"wall":17,"f":"begin","op":4,"producer":1,"txn":2}',
    ]
    for _ in range(60):
        lines = [rng.choice(USUAL) for _ in range(40)]
        for other in rng.sample(others, rng.randint(1, len(others))):
            lines.insert(rng.randrange(len(lines)), other)
        columnar, plain = both(history(lines), monkeypatch)
        assert columnar == plain


def numbered(line: bytes, rng: random.Random) -> bytes:
    """Return the line with other numbers, whose counts of digits mostly stay the same."""

    def number(found: re.Match[bytes]) -> bytes:
        count = len(found[0]) if rng.random() < 0.95 else rng.randint(1, 18)
        return str(rng.randrange(10 ** (count - 1) if count > 1 else 0, 10**count)).encode()

    return re.sub(rb"[0-9]+", number, line)


def test_lines_of_the_same_shape_have_the_same_meaning_as_their_json(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    for _ in range(20):
        lines = [numbered(rng.choice(USUAL), rng) for _ in range(200)]
        shaped = [part.line for kind in shapes(lines) for part in kind]
        assert 100 < sum(map(len, shaped)) < 200
        columnar, plain = both(history(lines), monkeypatch)
        assert columnar == plain


def shapes(lines: list[bytes]) -> tuple[list[Lines], list[Lines]]:
    data = b"\n".join([*lines, b""])
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return read_shapes(data, np.append(0, ends[:-1] + 1), ends)


def test_lines_of_one_size_may_have_several_shapes() -> None:
    begin, other = BEGIN, BEGIN.replace(b'"op":4,', b'"op":44,').replace(b'"mono":11', b'"mono":1')
    assert len(begin) == len(other)
    requests, answers = shapes([begin, other] * 20 + [ANSWER] * 20)
    assert [part.line.tolist() for part in requests] == [list(range(0, 40, 2)), list(range(1, 40, 2))]
    assert [part.columns[1:3, 0].tolist() for part in requests] == [[4, 11], [44, 1]]
    assert [part.tuples.shape for part in answers] == [(5, 20)]


@pytest.mark.parametrize(("old", "new"), VARIANTS)
def test_a_line_that_differs_from_many_has_the_same_meaning_as_its_json(
    old: bytes, new: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = COMMIT.replace(old, new, 1)
    for many in ([line] * 2, [line] * 40):
        columnar, plain = both(history([*[COMMIT] * 40, *many, *[BEGIN] * 40, *[COMMIT] * 3]), monkeypatch)
        assert columnar == plain


def test_every_changed_byte_among_equal_lines_has_the_same_meaning_as_its_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(5)
    for line in USUAL:
        changed = [
            line[:at] + bytes([rng.choice(b'0 9a,"[]}{:-\x80')]) + line[at + 1 :] for at in range(len(line))
        ]
        for start in range(0, len(line), 40):
            lines = [each for pair in zip([line] * 40, changed[start:], strict=False) for each in pair]
            for only in (lines, [*[line] * 20, changed[start]]):
                columnar, plain = both(history(only), monkeypatch)
                assert columnar == plain, only
