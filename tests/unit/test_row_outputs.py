"""Outputs that are no topic: rows of files, calls of the HTTP sink, mistakes in the scenario."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from harness.app.http_sink import LARGEST_BODY, HttpSink
from harness.base.errors import HarnessError, UsageError
from harness.evidence import manifest
from harness.evidence.observation import Meta, Observation
from harness.evidence.row_output import BadRowError, RowSource, observe_rows, rows_of
from harness.evidence.token import NO_TOKEN, token_of
from harness.run.row_collection import RowCollection, _check_same
from harness.scenario import load

RUN = "r7k2m9qa"
EFFECTS = Path(__file__).parents[1] / "effects" / "effects.toml"


def row(seq: int, more: str = "") -> bytes:
    return b'{"for":"%s"%s}' % (token_of(RUN, 0, 0, seq).upper().encode(), more.encode())


def observed(rows: list[bytes], source: str = "command", *, counted: bool = False) -> Observation:
    meta = Meta(witness="reader", kind="reference", complete=True)
    where = RowSource(name="calls", source=source, file="", counted=counted)  # type: ignore[arg-type]
    return observe_rows(meta, where, RUN, rows)


def test_rows_become_words_with_their_number_as_the_offset() -> None:
    view = observed([row(0), row(1), row(1), row(3)])
    (word,) = view.words
    assert (word["n"], int(word["bits"][0]), view.meta.purpose) == (4, 0b1011, "outputs")
    assert view.meta.repeats.count == 1
    assert [(w.topic, w.read_to) for w in view.meta.windows] == [("calls", 4)]


def test_two_witnesses_that_read_a_table_in_different_orders_agree() -> None:
    rows = [row(2), b'{"x":1}', row(0), row(1), b"{}"]
    one, other = observed(rows, "jdbc"), observed(rows[::-1], "jdbc")
    assert np.array_equal(one.words, other.words)
    assert one.meta.late.count == other.meta.late.count == 0


def test_calls_have_an_order() -> None:
    assert observed([row(1), row(0)], "http").meta.late.count == 1


def test_a_row_without_a_token_is_kept() -> None:
    words = observed([row(0), b'{"x":1}'], "http").words
    assert sorted(words["producer"].tolist()) == [0, NO_TOKEN]


def test_a_row_with_two_tokens_is_a_clash() -> None:
    assert observed([row(0, f',"and":"{token_of(RUN, 0, 0, 7)}"')]).meta.clashes.count == 1


def test_outputs_of_each_input_are_counted() -> None:
    assert observed([row(0)] * 3, counted=True).origins["part"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("line", [b"[1]", b"x", b"1", b'{"a":', b"\xff"])
def test_a_line_that_is_no_object_is_an_error(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "rows").write_bytes(b"{}\n\n" + line + b"\n")
    with pytest.raises(BadRowError, match="line 3 is no JSON object"):
        list(rows_of(tmp_path / "rows"))


def test_rows_are_evidence(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "calls.jsonl").write_bytes(row(0))
    assert manifest.evidence_files(tmp_path) == ["rows/calls.jsonl"]


def test_rows_that_change_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(row(0) + b"\n" + row(1) + b"\n")
    other.write_bytes(row(1) + b"\n" + row(0) + b"\n")
    _check_same(one, other)
    other.write_bytes(row(1) + b"\n" + row(0) + b"\n" + row(0) + b"\n")
    with pytest.raises(HarnessError, match="changed although the application was stopped"):
        _check_same(one, other)


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[HttpSink]:
    sink = HttpSink(tmp_path / "rows" / "calls.jsonl")
    yield sink
    sink.close()


def calls(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "rows" / "calls.jsonl").read_bytes().splitlines()]


def test_a_call_is_recorded_before_it_is_answered(sink: HttpSink, tmp_path: Path) -> None:
    request = Request(f"{sink.address}/a?b=1", b'{"total":3}', {"X-Id": "7", "Cookie": "x"}, method="PUT")
    with urlopen(request, timeout=10) as answer:
        assert (answer.status, answer.read()) == (200, b'{"call":1}\n')
    (call,) = calls(tmp_path)
    assert (call["method"], call["path"], call["body"]) == ("PUT", "/a?b=1", {"total": 3})
    assert isinstance(call["headers"], dict)
    assert call["headers"]["x-id"] == "7"
    assert "cookie" not in call["headers"]


def test_bodies_in_chunks_texts_and_several_calls_on_a_connection(sink: HttpSink, tmp_path: Path) -> None:
    connection = http.client.HTTPConnection(sink.address.removeprefix("http://"), timeout=10)
    for body in (iter([b'{"a"', b":1}"]), b"no json", None):
        connection.request("POST" if body else "GET", "/", body, encode_chunked=not isinstance(body, bytes))
        connection.getresponse().read()
    connection.close()
    assert [call["body"] for call in calls(tmp_path)] == [{"a": 1}, "no json", ""]
    assert sink.calls == 3


def test_a_call_that_did_not_arrive_as_a_whole_is_not_recorded(sink: HttpSink, tmp_path: Path) -> None:
    connection = http.client.HTTPConnection(sink.address.removeprefix("http://"), timeout=10)
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", "10")
    connection.endheaders(b"12345")
    connection.sock.shutdown(socket.SHUT_WR)
    assert connection.sock.recv(1000) == b""  # no answer
    connection.close()
    assert calls(tmp_path) == []


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        pytest.param("gzip", gzip.compress, id="gzip"),
        pytest.param("deflate", zlib.compress, id="deflate"),
        pytest.param("Deflate", lambda body: zlib.compress(body, wbits=-15), id="deflate-without-header"),
        pytest.param("identity", bytes, id="none"),
    ],
)
def test_a_packed_body_is_recorded_unpacked(
    sink: HttpSink, tmp_path: Path, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    urlopen(Request(sink.address, pack(b'{"total":3}'), {"Content-Encoding": encoding}), timeout=10).close()
    assert [call["body"] for call in calls(tmp_path)] == [{"total": 3}]


@pytest.mark.parametrize(
    ("encoding", "body", "answer"),
    [
        pytest.param(
            "gzip", gzip.compress(b"x" * 99)[:-9], "400 the body is not complete, or not gzip", id="half"
        ),
        pytest.param("gzip", b"plain", "400 the body is not complete, or not gzip", id="plain"),
        pytest.param("br", b"x", "415 the sink cannot read br: send gzip", id="unknown"),
        pytest.param(
            "gzip", gzip.compress(b"x" * (LARGEST_BODY + 1)), "413 the body is too large", id="large"
        ),
    ],
)
def test_a_body_that_cannot_be_unpacked_is_refused_and_not_recorded(
    sink: HttpSink, tmp_path: Path, encoding: str, body: bytes, answer: str
) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(Request(sink.address, body, {"Content-Encoding": encoding}), timeout=10)
    assert f"{refused.value.code} {refused.value.read().decode()}".startswith(answer)
    assert calls(tmp_path) == []


def test_a_closed_sink_records_nothing(sink: HttpSink, tmp_path: Path) -> None:
    sink.close()
    with pytest.raises(OSError, match="refused"):
        urlopen(sink.address, timeout=10)
    assert calls(tmp_path) == []


def status_of(sink: HttpSink, body: bytes, encoding: str) -> int:
    """Send a packed body, and return the status of the answer."""
    request = Request(f"{sink.address}/", body, {"Content-Encoding": encoding}, method="POST")
    try:
        with urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("GZIP ", gzip.compress),
        ("x-gzip", lambda body: gzip.compress(body[:4]) + gzip.compress(body[4:])),
        ("", bytes),
    ],
    ids=["upper", "two parts", "plain"],
)
def test_other_forms_of_packed_bodies_are_unpacked(
    sink: HttpSink, tmp_path: Path, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    assert status_of(sink, pack(b'{"total":3}'), encoding) == 200
    assert [call["body"] for call in calls(tmp_path)] == [{"total": 3}]
    assert sink.refused == ""


BAD_BODIES: dict[str, tuple[str, bytes, int, str]] = {
    "unknown": ("br", b"x", 415, "the sink cannot read br: send gzip"),
    "several": ("gzip, br", b"x", 415, "the sink cannot read gzip, br: send"),
    "not packed": ("gzip", b'{"total":3}', 400, "the body is not complete, or not gzip"),
    "cut": ("gzip", gzip.compress(b"12345678" * 100)[:-9], 400, "the body is not complete, or not gzip"),
    "behind it": ("gzip", gzip.compress(b"1") + b"x", 400, "the body"),
    "many parts": ("gzip", gzip.compress(b"") * 1001, 400, "more than 1000 packed parts"),
    "too large": ("gzip", gzip.compress(bytes(LARGEST_BODY + 1)), 413, "the body is too large"),
    "too large in parts": (
        "gzip",
        gzip.compress(bytes(LARGEST_BODY)) + gzip.compress(b"1"),
        413,
        "the body is too large",
    ),
}


@pytest.mark.parametrize("kind", BAD_BODIES)
def test_a_body_that_cannot_be_unpacked_is_refused_and_counted(
    sink: HttpSink, tmp_path: Path, kind: str
) -> None:
    encoding, body, status, why = BAD_BODIES[kind]
    assert [status_of(sink, body, encoding) for _ in range(2)] == [status, status]
    assert calls(tmp_path) == []
    assert sink.calls == 0
    assert sink.refused.startswith("2 calls: ")
    assert why in sink.refused
    with pytest.raises(HarnessError, match="the HTTP sink refused 2 calls: "):
        RowCollection._check_refused(tmp_path / "rows" / "calls.jsonl")


def test_the_largest_body_is_recorded(sink: HttpSink, tmp_path: Path) -> None:
    assert status_of(sink, gzip.compress(b"1" * LARGEST_BODY), "gzip") == 200
    RowCollection._check_refused(tmp_path / "rows" / "calls.jsonl")
    assert sink.calls == 1


def test_the_example_of_effects_loads_with_three_sources() -> None:
    assert [part.sources for part in load(EFFECTS).output] == [["command"], ["jdbc"], ["http"]]


ROWS = '[[output]]\ntable = "calls"\nhttp = true\n'


@pytest.mark.parametrize(
    ("old", "new", "key", "text"),
    [
        (ROWS, '[[output]]\ntable = "calls"\n', "output[2]", "give one of topic, command"),
        ("http = true", 'http = true\ncommand = ["x"]', "output[2]", "has command and http"),
        ("http = true", 'http = true\nquery = "x"', "output[2].query", "needs jdbc"),
        ("http = true", 'http = true\ncolumns = ["x"]', "output[2].columns", "only for topics"),
        ('table = "calls"\n', "", "output[2].table", "is missing"),
        ('table = "calls"', 'table = "called"', "app", "write {http:called}"),
        ("{http:calls}", "x", "app", "write {http:calls}"),
        ('table = "stored"', 'table = "invoices"', "output[0].table", "used twice"),
        ('table = "stored"', 'table = "stored"\norder = "key"', "output[1].order", "have no order"),
        ("jdbc:sqlite:{shared}", "sqlite:{shared}", "output[1].jdbc", "is not the address"),
        ("jdbc:sqlite:{shared}", "jdbc:sqlite:{state}", "output[1].jdbc", "is not a placeholder here"),
        ('"rows.py", "{shared}', '"rows.py", "{topic:orders}', "output[0].command", "not a placeholder"),
        ('invoices.sqlite"\nquery', 'x?password=1"\nquery', "output[1].jdbc", "contains a password"),
        ("driver = ", 'password = "x"\ndriver = ', "output[1].password", "env:NAME"),
        ('driver = "org.xerial:', 'driver = "org.xerial ', "output[1].driver", "Maven coordinates"),
        ('query = "select number, total as sum from invoices"', "", "output[1].query", "is missing"),
    ],
)
def test_a_mistake_about_rows_is_reported(tmp_path: Path, old: str, new: str, key: str, text: str) -> None:
    good = EFFECTS.read_text()
    assert old in good
    path = tmp_path / "wrong.toml"
    path.write_text(good.replace(old, new))
    with pytest.raises(UsageError) as error:
        load(path)
    assert f"{key}:" in error.value.message
    assert text in f"{error.value.message} {error.value.hint}"


def test_rows_need_a_group(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(EFFECTS.read_text().replace('group = "effects"\n', "").replace('GROUP = "{group}", ', ""))
    with pytest.raises(UsageError, match="do not show when the application has finished"):
        load(path)


def test_rows_need_no_group_if_a_topic_shows_the_end(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    text = EFFECTS.read_text().replace('group = "effects"\n', "").replace('GROUP = "{group}", ', "")
    text = text.replace("env = {", 'env = { LATER = "{topic:later}",')
    path.write_text(f'{text}\n[[output]]\ntopic = "later"\n')
    assert [part.is_topic for part in load(path).output] == [False, False, False, True]
