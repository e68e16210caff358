"""Cases of contracts in SQL, which every engine must judge alike: records of inputs and outputs, and results.

An input is customer, amount and paid; its sequence is its place in the list. The inputs 0, 1, 2, 3 have the
amounts 5, 7, 11 and 13. The customers 1 and 2 have the inputs 0, 2 and 1, 3.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.evidence.checkers.model import AppContract
from harness.evidence.contract_statement import REFERENCES
from harness.evidence.token import token_of
from harness.run.run_names import Names, rename_scenario
from harness.scenario import load
from harness.scenario.contract_sql import app_contract

RUN = "r7k2m9qa"
SCENARIO = """\
[scenario]
name = "mine"
shows = "an example"

[app]
command = ["app", "{bootstrap}", "{topic:orders}", "{topic:out}"]

[[input]]
topic = "orders"
value = '{"order":"{id}","customer":{int 1..2},"amount":{int 1..500},"ts":{time +1s},"to":{"city":"a"}}'

[[output]]
topic = "out"
"""
INPUTS = [(1, 5), (2, 7), (1, 11), (2, 13)]
Found = list[tuple[str, int]]
"""Kind and weight of each deviation."""


@dataclass
class SqlCase:
    """One case: the keys of the output, its records, and what each statement finds."""

    output: str
    records: list[Any]
    found: dict[str, Found] = field(default_factory=dict)
    required: list[int] | None = None
    error: str = ""
    other: str = ""
    """Text in the error of Spark, if it is another one."""
    calm: tuple[list[Any], list[Any]] | None = None
    """Outputs of the two calm runs."""
    rows: bool = False
    """Whether the output consists of rows without order."""


def token(seq: int) -> str:
    return token_of(RUN, 0, 0, seq)


def invoice(seq: int, total: float | None = None, **more: object) -> dict[str, object]:
    amount = INPUTS[seq][1]
    return {"for": token(seq), "total": amount * 1.5 if total is None else total, **more}


def contract_of(case: SqlCase, folder: Path) -> AppContract:
    """Return the contract of a case, with the names of a run."""
    path = folder / "case.toml"
    text = SCENARIO
    if case.rows:
        text = text.replace('topic = "out"', 'table = "out"\ncommand = ["rows"]')
        text = text.replace('"{topic:out}"]', '"{group}"]\ngroup = "g"')
    path.write_text(text + case.output)
    contract = app_contract(rename_scenario(load(path), Names("", RUN).scoped))
    assert contract is not None
    return contract


Record = tuple[str, int, int, bytes | None, bytes | None]


def records_of(case: SqlCase) -> list[Record]:
    """Return topic, partition, offset, key and value of all records."""
    records: list[Record] = []
    for seq, (customer, amount) in enumerate(INPUTS):
        value = {"order": token(seq), "customer": customer, "amount": amount, "ts": 1000 * seq}
        record = (str(customer).encode(), json.dumps(value | {"to": {"city": "ab"[seq % 2]}}).encode())
        records.append((f"orders.{RUN}", 0, seq, *record))
    for offset, one in enumerate(case.records):
        partition, value = one if isinstance(one, tuple) else (0, one)
        if case.rows:
            records.append(("out", 0, 0, None, json.dumps(value).encode()))
            continue
        text = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        records.append((f"out.{RUN}", partition, offset, b"k", text))
    for ending, outputs in zip(REFERENCES, case.calm or (), strict=False):
        records += [(f"orders{ending}", *record[1:]) for record in records if record[0] == f"orders.{RUN}"]
        records += [(f"out{ending}", 0, 0, None, json.dumps(one).encode()) for one in outputs]
    return records


REFERENCE = 'reference = ["total", "city"]\n'
HOLDS = 'holds = "o.total = i.amount * 3 / 2"\n'
LAST = 'per = "customer"\nis = { n = "count(*)", total = "sum(amount)" }\n'
EVERY = f'{LAST}seen = "every"\n'
EXPECT = 'expect = "select customer, amount * 2 as twice from orders where amount > 5"\n'
CONSERVE = 'conserve = { outputs = "sum(credit) - sum(debit)", inputs = "0" }\n'
WINDOW = (
    'per = "customer"\nis = { n = "count(*)" }\nwindow = { field = "ts", size = "2s", start = "begin" }\n'
)


def total(customer: object, n: float, amount: float) -> dict[str, object]:
    return {"customer": customer, "n": n, "total": amount}


def window(customer: int, begin: int, n: int) -> dict[str, object]:
    return {"customer": customer, "begin": begin, "n": n}


def pair(first: int | None, second: int | None) -> dict[str, object]:
    ids = {"one": first, "other": second}
    return {name: None if seq is None else token(seq).upper() for name, seq in ids.items()}


BILLED = [invoice(seq, city="ab"[seq % 2], clock=seq) for seq in range(4)]
IDS = 'each = 1\nids = { one = "orders", other = "orders" }\n'
RUNNING = [total(1, 1, 5), total(2, 1, 7), total(1, 2, 16), total(2, 2, 20)]
WINDOWS = [window(1, 0, 1), window(2, 0, 1), window(1, 2000, 1), window(2, 2000, 1)]
TWICE = [{"customer": 2, "twice": 14}, {"customer": 1, "twice": 22}, {"customer": 2, "twice": 26}]
CHANGES = [{"tx": 1, "op": "c"}, {"tx": 1, "op": "u"}, {"tx": 2, "op": "c"}, {"tx": 3, "op": "r"}]
UNIQUE = 'unique = ["tx", "lower(op)"]\n'
SNAPSHOT = f"{UNIQUE}repeatable = \"op = 'r'\"\n"

CASES = {
    "holds": SqlCase(HOLDS, [invoice(i) for i in (3, 2, 0, 1)], {"holds": []}),
    "holds, a wrong total": SqlCase(
        HOLDS, [invoice(0), invoice(1, 10), invoice(2, 17), invoice(3)], {"holds": [("differs", 2)]}
    ),
    "holds, a null": SqlCase(
        HOLDS, [invoice(0), {"for": token(1), "total": None}], {"holds": [("differs", 1)]}
    ),
    "holds, no such field": SqlCase(HOLDS, [{"for": token(0), "sum": 7.5}], error="has a field total"),
    "holds, no JSON": SqlCase(HOLDS, [invoice(0), token(1).encode() + b"\xff"], {"holds": [("differs", 1)]}),
    "holds, a field of an object": SqlCase(
        'holds = "o.a_b = i.to_city and o.flag"\n'.replace("o.flag", "o.flag = 1"),
        [{"for": token(0), "a": {"b": "a"}, "flag": True}, {"for": token(1), "a": {"b": "b"}, "flag": False}],
        {"holds": [("differs", 1)]},
    ),
    "is last": SqlCase(LAST, RUNNING, {"is": []}),
    "is last, repaired": SqlCase(LAST, [total(1, 9, 9), *RUNNING], {"is": []}),
    "is last, counted twice": SqlCase(LAST, [*RUNNING, total(1, 3, 21)], {"is": [("differs", 1)]}),
    "is last, a key is missing": SqlCase(LAST, [RUNNING[2]], {"is": [("missing", 1)]}),
    "is last, a key of no input": SqlCase(LAST, [*RUNNING, total(3, 1, 1)], {"is": [("extra", 1)]}),
    "is last, a key in two partitions": SqlCase(
        LAST, [*RUNNING, (1, total(1, 2, 16))], {"is": [("split", 1)]}
    ),
    "is last, rows": SqlCase(LAST, RUNNING[2:], {"is": []}, rows=True),
    "is last, two rows of a key": SqlCase(
        LAST, [*RUNNING[2:], RUNNING[0]], {"is": [("repeated", 1)]}, rows=True
    ),
    "is last, rows with a wrong total": SqlCase(
        LAST, [total(1, 2, 17), RUNNING[3]], {"is": [("differs", 1)]}, rows=True
    ),
    "holds, rows": SqlCase(
        HOLDS, [invoice(0), invoice(1, 10), invoice(2)], {"holds": [("differs", 1)]}, rows=True
    ),
    "expect, rows": SqlCase(EXPECT, [*TWICE, TWICE[1]], {"expect": [("repeated", 1)]}, rows=True),
    "ids": SqlCase(IDS, [pair(0, 3), pair(1, 2), pair(2, 1), pair(3, 0)], {"ids": []}),
    "ids, the second is missing": SqlCase(
        IDS, [pair(0, 0), pair(1, None), pair(2, 2), pair(3, 3)], {"ids": [("missing", 1)]}
    ),
    "ids, one pair again": SqlCase(IDS, [pair(i, i) for i in (0, 1, 2, 3, 3)], {"ids": [("repeated", 1)]}),
    "ids, of no input": SqlCase(
        IDS, [*(pair(i, i) for i in range(4)), pair(None, 9)], {"ids": [("extra", 1)]}
    ),
    "ids, at least one": SqlCase(
        IDS.replace("each = 1", 'each = "1.."'), [pair(i % 4, i % 4) for i in range(7)], {"ids": []}
    ),
    "reference": SqlCase(REFERENCE, BILLED[::-1], {"reference": [], "calm": []}, calm=(BILLED, BILLED[::-1])),
    "reference, another value": SqlCase(
        REFERENCE,
        [*BILLED[:3], invoice(3, 1, city="b")],
        {"reference": [("differs", 2)], "calm": []},
        calm=(BILLED, BILLED),
    ),
    "reference, fewer and more": SqlCase(
        REFERENCE,
        [BILLED[0], BILLED[0], BILLED[2], BILLED[3]],
        {"reference": [("missing", 1), ("repeated", 1)], "calm": []},
        calm=(BILLED, BILLED),
    ),
    "reference, calm runs differ": SqlCase(
        REFERENCE,
        BILLED,
        {"reference": [], "calm": [("differs", 2)]},
        calm=(BILLED, [*BILLED[:3], invoice(3, city="x")]),
    ),
    "reference, an input of one run only": SqlCase(
        REFERENCE,
        [*BILLED, {"for": token(9), "total": 1, "city": "a"}],
        {"reference": [], "calm": []},
        calm=(BILLED, BILLED),
    ),
    "is every": SqlCase(EVERY, RUNNING, {"is": [], "is every": []}),
    "is every, a value is skipped": SqlCase(EVERY, RUNNING[2:], {"is": [], "is every": []}),
    "is every, repaired": SqlCase(
        EVERY, [total(1, 9, 9), *RUNNING], {"is": [], "is every": [("differs", 1)]}
    ),
    "is every, from two states": SqlCase(
        EVERY, [total(1, 1, 16), *RUNNING], {"is": [], "is every": [("differs", 1)]}
    ),
    "is every, went back": SqlCase(
        EVERY, [*RUNNING, total(1, 1, 5), total(1, 2, 16)], {"is": [], "is every": [("went_back", 1)]}
    ),
    "windows": SqlCase(WINDOW, WINDOWS, {"is": []}),
    "windows, one counts twice": SqlCase(WINDOW, [*WINDOWS, window(2, 0, 2)], {"is": [("differs", 1)]}),
    "conserve": SqlCase(
        CONSERVE, [{"credit": 1.5, "debit": 1}, {"credit": 2, "debit": 2.5}], {"conserve": []}
    ),
    "conserve, one leg is missing": SqlCase(
        CONSERVE, [{"credit": 5, "debit": 5}, {"credit": 2, "debit": 0}], {"conserve": [("differs", 1)]}
    ),
    "conserve, fractions": SqlCase(
        'conserve = { outputs = "sum(x)", inputs = "sum(amount / 10)" }\n',
        [{"x": 0.5}, {"x": 0.7}, {"x": 1.1}, {"x": 1.3}],
        {"conserve": []},
    ),
    "unique": SqlCase(UNIQUE, CHANGES, {"unique": []}),
    "unique, one is written three times": SqlCase(
        UNIQUE, [*CHANGES, CHANGES[0], CHANGES[0], CHANGES[2]], {"unique": [("repeated", 3)]}
    ),
    "unique, two nulls": SqlCase(
        UNIQUE, [*CHANGES, {"tx": None, "op": None}, {"tx": None}], {"unique": [("repeated", 1)]}
    ),
    "unique, what may be repeated": SqlCase(
        SNAPSHOT, [*CHANGES, CHANGES[3], CHANGES[3]], {"unique": [("permitted", 2)]}
    ),
    "unique, what may be repeated and what may not": SqlCase(
        SNAPSHOT, [*CHANGES, CHANGES[3], CHANGES[0]], {"unique": [("permitted", 1), ("repeated", 1)]}
    ),
    "unique, rows": SqlCase(UNIQUE, [*CHANGES, CHANGES[1]], {"unique": [("repeated", 1)]}, rows=True),
    "expect": SqlCase(EXPECT, TWICE, {"expect": []}),
    "expect, one is missing": SqlCase(EXPECT, TWICE[1:], {"expect": [("missing", 1)]}),
    "expect, one is repeated": SqlCase(EXPECT, [*TWICE, TWICE[1], TWICE[1]], {"expect": [("repeated", 2)]}),
    "expect, one is wrong": SqlCase(
        EXPECT, [{"customer": 2, "twice": 15}, *TWICE[1:]], {"expect": [("extra", 1), ("missing", 1)]}
    ),
    "expect, the last of a key": SqlCase(
        'expect = "select customer, count(*) as n from orders group by customer"\nlast_by = "customer"\n',
        RUNNING,
        {"expect": []},
    ),
    "expect, texts": SqlCase(
        'expect = "select upper(to_city) as city, length(`order`) as n from orders"\n',
        [{"city": "A", "n": 35}, {"city": "B", "n": 35}, {"city": "A", "n": 35}, {"city": "C", "n": 35}],
        {"expect": [("extra", 1), ("missing", 1)]},
    ),
    "each by SQL": SqlCase('each = "int(amount > 5) + int(amount > 11)"\n', [], required=[0, 1, 1, 2]),
    "each by SQL, a condition": SqlCase('each = "amount > 7"\n', [], required=[0, 0, 1, 1]),
    "CSV": SqlCase(
        'columns = ["who", "total"]\nholds = "o.total = i.amount and o.who <> \'x,y\'"\n',
        [f"{token(0)},5".encode(), f'"x,y",7,{token(1)}'.encode(), f"{token(2)},11.0".encode()],
        {"holds": [("differs", 1)]},
    ),
    "the value itself": SqlCase(
        "holds = \"o.kafka_key = 'k' and length(o.kafka_value) = 35 and i.amount > 5\"\n",
        [token(0).encode(), token(1).upper().encode()],
        {"holds": [("differs", 1)]},
    ),
}
