"""Spark finds the tokens in keys, values and headers, and counts the outputs of each input."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from harness.evidence.observation import Meta, Window
from harness.evidence.observation_builder import Records, observe_outputs
from harness.evidence.record import Identity, NotARecordError, decode, encode
from harness.evidence.token import SLOT_PRODUCERS, TokenFinder, token_of
from spark_jobs import kafka_source
from spark_jobs.jvm_class import SOURCES, compiled_class
from spark_jobs.kafka_source import FrozenLog, KafkaSource, _with_tokens, count_outputs

pytestmark = pytest.mark.spark
RUN = "r7k2m9qa"
SCHEMA = "topic string, partition int, offset bigint, key binary, value binary, "
SCHEMA += "headers array<struct<key: string, value: binary>>"


def text(seq: int, run: str = RUN) -> bytes:
    return token_of(run, 3, 1, seq).encode()


PIECES = [
    b"eos1",
    RUN.encode(),
    b"0",
    b"12345678901",
    text(30),
    text(31)[:13],
    text(31)[13:],
    b" ",
    b"e",
    b"E0",
]
RECORDS: list[tuple[bytes | None, bytes | None, list[bytes | None] | None]] = [
    (None, b'{"order":"' + text(0) + b'"}', None),
    (text(1), None, None),
    (None, b"x", [b"a", text(2).upper(), None]),
    (None, b"\xff\xfe" + text(3) + b"\x00", []),
    (text(4), text(5), None),
    (text(6), text(6), [text(6)]),
    (None, text(7, "another1"), None),
    (None, None, None),
    (text(8)[:17], text(8)[17:], None),
    (None, text(0), None),
    (None, b"\xc3\xa9 " + text(0), None),
    (None, text(9)[:-1] + b"x", None),
    (None, text(9)[:-1], None),
    (None, text(10) + text(11), None),
    (text(12) + b"0", b"0" + text(13), [b"eos1" + text(14), b"eos1r7k2m9qa" + text(15)]),
    (None, text(16).replace(RUN.encode() + b"0", RUN.encode() + b"1"), None),
    (None, text(17)[:20] + text(18) + text(19)[5:], None),
    (None, b"EoS1" + text(20)[4:8].upper() + text(20)[8:], None),
    (b"", b"", [b""]),
]
for n in range(13):  # the search begins at every place of the needle
    RECORDS += [(None, b"x" * n + text(40 + n), None), (None, b"X" * n + text(60 + n).upper(), None)]
RECORDS += [(None, b"".join(random.Random(n).choices(PIECES, k=6)), None) for n in range(200)]


def frame(spark: Any, topic: str) -> Any:
    rows = [
        (topic, 0, offset, key, value, None if headers is None else [("h", one) for one in headers])
        for offset, (key, value, headers) in enumerate(RECORDS)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def found_by_python(topic: str, slot: int) -> list[tuple[str, int, Identity | None]]:
    finder, rows = TokenFinder(RUN), []
    for offset, (key, value, headers) in enumerate(RECORDS):
        parts = [key, value, *(headers or [])]
        try:
            found = finder.outputs(offset, parts) if slot else finder.inputs(parts)
        except NotARecordError:
            rows.append((topic, offset, None))
            continue
        for one in found:
            rows.append((topic, offset, one._replace(producer=one.producer + slot * SLOT_PRODUCERS)))
    return rows


def encoded(found: list[tuple[str, int, Identity | None]]) -> list[tuple[str, int, bytes | None]]:
    return [(topic, offset, None if one is None else encode(one)) for topic, offset, one in found]


@pytest.mark.parametrize(("topic", "slot"), [("in", 0), ("out", 1), ("copies", 9)])
def test_spark_finds_the_same_tokens_as_the_plain_consumer(spark: Any, topic: str, slot: int) -> None:
    source = KafkaSource("", "token", {}, RUN, {"out": 1, "copies": 9})
    rows = _with_tokens(frame(spark, topic), source).collect()
    values = [(r.topic, r.offset, None if r.value is None else bytes(r.value)) for r in rows]
    expected = found_by_python(topic, slot)
    assert values == [
        (topic, offset, None if one is None else encode(one)) for topic, offset, one in expected
    ]
    assert all(value is None or decode(value) for _, _, value in values)


RULES = {
    "upper case": ("letter += 'a' - 'A';", ""),
    "the whole needle": ("i < needle.length - 1; i++", "i < 1; i++"),
    "digits": ("digit < '0' || digit > '9'", "false"),
    "each token once": ("equals((byte[]) found.get(i), bytes)", "equals((byte[]) found.get(i), null)"),
    "the key": ("search(row, layout.atKey);", ""),
    "the value": ("search(row, layout.atValue);", ""),
    "the headers": ("i < headers.numElements()", "i < 0"),
    "the slot": ("bytes[layout.slotAt] = slot;", ""),
    "the skip of a small letter": ("skips[letter] = last - i;", "skips[letter] = last + 1;"),
    "the skip of a capital": ("skips[Character.toUpperCase((char) letter)] = last - i;", ""),
    "the next token": ("at += needle.length + layout.digits;", "at += 1000;"),
    "no token": ("slot == '0' ? null : withoutToken()", "null"),
    "the offset of a record without a token": ("left % 10", "0"),
}
"""For each rule of the search: its Java code, and the code that replaces it to remove the rule."""


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_the_search_is_needed(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rule: str
) -> None:
    name = f"FindTokens{list(RULES).index(rule)}"
    text = (SOURCES / "FindTokens.java").read_text()
    assert RULES[rule][0] in text
    changed = text.replace(*RULES[rule]).replace("FindTokens", name)
    make = compiled_class(spark, changed, tmp_path / f"{name}.jar", name)
    monkeypatch.setattr(kafka_source, "java_class", lambda *_: make)
    rows = _with_tokens(frame(spark, "out"), KafkaSource("", "token", {}, RUN, {"out": 1})).collect()
    found = [(r.topic, r.offset, None if r.value is None else bytes(r.value)) for r in rows]
    assert found != encoded(found_by_python("out", 1))


def test_spark_counts_the_outputs_like_the_plain_consumer(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = KafkaSource("", "token", {}, RUN, {"out": 1})
    log = FrozenLog(_with_tokens(frame(spark, "out"), source), {})
    monkeypatch.setattr(kafka_source, "read_ranges", lambda *_: log)
    counted = count_outputs(spark, source, [])
    records = Records()
    for number, (_, _, identity) in enumerate(found_by_python("out", 1)):
        # the counts are of tokens: of two tokens in one record, each counts
        records.add(0, number, cast(Identity, identity)) if identity else None
    meta = Meta(witness="w", kind="spark", windows=[Window("out", 0, 0, 999, 999, 999)])
    expected = observe_outputs(meta, records, counted=True).origins
    order = ["producer", "lane", "part", "word"]
    assert np.array_equal(np.sort(counted, order=order), np.sort(expected, order=order))
    assert expected["part"].max() >= 2
