"""Inputs of an application: tokens are found again, fields depend on seed and token only, keys are lanes."""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from harness.base.errors import UsageError
from harness.clients import producer_lifecycle
from harness.clients.client import Deadline
from harness.clients.client_spec import SeederSpec
from harness.clients.input_encoder import check_encoded, encoder_of
from harness.clients.input_template import FIRST_TIME_MS, InputTemplate, InputValues
from harness.clients.progress import ClientProgress
from harness.clients.seeder import SeederClient
from harness.evidence.history import HistoryFile, HistoryWriter, Invoke
from harness.evidence.ledger import ABORTED, COMMITTED, fold
from harness.evidence.record import Identity, NotARecordError
from harness.evidence.token import NO_TOKEN, TOKEN_WIDTH, TokenFinder, token_of
from tests.unit.scripted_library import Script, ScriptedProducer

RUN = "r7k2m9qa"
TOKEN = token_of(RUN, 3, 1, 42)


def test_a_token_is_a_word_of_fixed_width() -> None:
    assert TOKEN == "eos1r7k2m9qa00000300001000000000042"
    assert len(TOKEN) == TOKEN_WIDTH
    assert re.fullmatch(r"[a-z0-9]+", TOKEN)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([TOKEN.encode()], id="alone"),
        pytest.param([b'{"order":"' + TOKEN.encode() + b'"}'], id="json"),
        pytest.param([None, b"a;" + TOKEN.upper().encode() + b";7"], id="upper-case"),
        pytest.param([b"\xff\x00\x46" + TOKEN.encode() + b"123"], id="binary"),
        pytest.param([TOKEN.encode(), b"x" + TOKEN.encode() + TOKEN.encode()], id="several-times"),
    ],
)
def test_a_token_is_found_anywhere(parts: list[bytes | None]) -> None:
    assert TokenFinder(RUN).find(parts) == [Identity(RUN, 3, 1, 42)]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([], id="no-part"),
        pytest.param([None, b""], id="empty"),
        pytest.param([token_of("otherrun", 3, 1, 42).encode()], id="other-run"),
        pytest.param([TOKEN[:-1].encode()], id="cut"),
        pytest.param([TOKEN[:20].encode(), TOKEN[20:].encode()], id="in-two-parts"),
        pytest.param([TOKEN.replace("r7k2m9qa0", "r7k2m9qa1").encode()], id="producer-of-an-output"),
    ],
)
def test_other_text_is_no_token(parts: list[bytes | None]) -> None:
    assert TokenFinder(RUN).find(parts) == []


def test_two_different_tokens_are_both_found() -> None:
    other = token_of(RUN, 3, 1, 43)
    found = TokenFinder(RUN).find([other.encode(), TOKEN.encode()])
    assert [identity.seq for identity in found] == [43, 42]


def test_only_an_output_may_lack_a_token() -> None:
    finder = TokenFinder(RUN)
    assert finder.inputs([TOKEN.encode()]) == finder.outputs(7, [TOKEN.encode()])
    assert finder.outputs(7, [b"heartbeat"]) == [Identity(RUN, NO_TOKEN, 0, 7)]
    with pytest.raises(NotARecordError, match="no token of this run"):
        finder.inputs([b"heartbeat"])


def values(seq: int = 42, seed: int = 1, run: str = RUN) -> InputValues:
    return InputValues(seed, token_of(run, 3, 1, seq), seq, 1)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ('{"order":"{id}","n":{n}}', f'{{"order":"{TOKEN}","n":42}}'),
        ("customer-{key}", "customer-1"),
        ("{{id}} {{int 1..5}}", "{id} {int 1..5}"),
        ("{time +10ms}", str(FIRST_TIME_MS + 420)),
        ("{int 7..7}", "7"),
        ("{choice red}", "red"),
        ('{"a":{"b":[{}]}}', '{"a":{"b":[{}]}}'),
    ],
)
def test_fields_are_filled(text: str, filled: str) -> None:
    assert InputTemplate(text).fill(values()) == filled


def test_random_fields_depend_on_seed_and_token_only() -> None:
    template = InputTemplate("{int -5..5} {choice a b c} {uuid} {int -5..5}")
    filled = [template.fill(values(seq)) for seq in range(300)]
    assert filled == [template.fill(values(seq, run="another1")) for seq in range(300)]
    assert filled != [template.fill(values(seq, seed=2)) for seq in range(300)]
    numbers, words, uuids, more = zip(*(text.split() for text in filled), strict=True)
    assert {int(number) for number in numbers} == set(range(-5, 6))
    assert set(words) == {"a", "b", "c"}
    assert numbers != more
    assert len(set(uuids)) == 300
    assert {(uuid.UUID(text).version, uuid.UUID(text).variant) for text in uuids} == {(8, uuid.RFC_4122)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{idd}", "did you mean id"),
        ("{id 3}", "write {id}"),
        ("{int 5}", "write {int 1..500}"),
        ("{int 9..1}", "the lower number first"),
        ("{choice }", "write {choice red green blue}"),
        ("{time 10ms}", "write {time +10ms}"),
        ("{time +10}", "write {time +10ms}"),
        ("{time +1us}", "or more"),
    ],
)
def test_a_mistake_in_a_template_is_explained(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        InputTemplate(text)
    assert problem in raised.value.hint


class CountedLooks(Deadline):
    """Deadline of a client that ends after a number of looks at it, however slow the machine is."""

    def __init__(self, looks: int) -> None:
        super().__init__(600)
        self._looks = looks

    def __bool__(self) -> bool:
        self._looks -= 1
        if self._looks <= 0:
            self.request_stop()
        return super().__bool__()


def seed_inputs(at: Path, monkeypatch: pytest.MonkeyPatch, **fields: object) -> Script:
    """Let a seeder write some hundred inputs to a scripted library; return the script."""
    script = Script()
    monkeypatch.setattr(producer_lifecycle, "Producer", lambda config: ScriptedProducer(config, script))
    spec = SeederSpec(
        run=RUN,
        client="seeder-orders-1",
        number=3,
        bootstrap="b:1",
        history=str(at / "seeder.jsonl"),
        seconds=600,
        topic="orders",
        partitions=2,
        transactional_id="x",
        rate=2000,
        records=(5, 20),
        abort_share=0.3,
        seed=1,
        **fields,  # type: ignore[arg-type]
    )
    with HistoryWriter(at / "seeder.jsonl", run=RUN, client=spec.client, role="seeder") as history:
        SeederClient(spec, history, ClientProgress(), CountedLooks(20000)).run()
    return script


def test_a_seeder_records_what_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = seed_inputs(tmp_path, monkeypatch, keys=5, value='{"order":"{id}","amount":{int 1..9}}')
    ledger = fold([HistoryFile(tmp_path / "seeder.jsonl")])
    assert ledger.problems == []
    assert ledger.places == [("orders", key % 2) for key in range(5)]
    assert {COMMITTED, ABORTED} <= set(ledger.intervals.fate.tolist())
    committed = {
        (int(lane), seq)
        for lane, first, last, fate in zip(
            ledger.intervals.lane,
            ledger.intervals.first,
            ledger.intervals.last,
            ledger.intervals.fate,
            strict=True,
        )
        if fate == COMMITTED
        for seq in range(int(first), int(last) + 1)
    }
    finder, written = TokenFinder(RUN), set()
    for partition, log in script.logs.items():
        for value in log:
            if value is not None:
                (identity,) = finder.find([value])
                assert identity.lane % 2 == partition
                assert 1 <= json.loads(value)["amount"] <= 9
                written.add((identity.lane, identity.seq))
    assert written == committed
    assert any(isinstance(line, Invoke) for _, line in HistoryFile(tmp_path / "seeder.jsonl").read())


VALUE = '{"order":"{id}","amount":{int 1..9}}'


def test_headers_are_templates_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"region": "{choice eu us}", "trace": "{id}"}
    script = seed_inputs(tmp_path, monkeypatch, value=VALUE, headers=headers)
    assert {each["region"] for each in script.headers} == {b"eu", b"us"}
    values = {found for log in script.logs.values() for v in log for found in TokenFinder(RUN).find([v])}
    traces = {found for each in script.headers for found in TokenFinder(RUN).find([bytes(each["trace"])])}  # type: ignore[arg-type]
    assert values <= traces
    assert len(traces) == len(script.headers)


ENCODER = """
import base64, sys
def encode(text):
    return b"\\x00" + text.encode()[::1]
def compress(text):
    import zlib
    return zlib.compress(text.encode())
def text(text):
    return text
if __name__ == "__main__":
    for line in sys.stdin:
        print(base64.b64encode(encode(line.strip())).decode() if "bad" not in sys.argv else "???", flush=True)
"""


@pytest.mark.parametrize(
    "fields",
    [{"encoder": "codec.py:encode"}, {"encoder_command": [sys.executable, "codec.py"]}],
    ids=["function", "command"],
)
def test_an_encoder_makes_the_bytes_of_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    (tmp_path / "codec.py").write_text(ENCODER)
    script = seed_inputs(tmp_path, monkeypatch, value=VALUE, folder=str(tmp_path), **fields)
    values = [value for log in script.logs.values() for value in log if value]
    assert values
    assert all(value.startswith(b'\x00{"order":"eos1') for value in values)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"encoder": "codec.py:compress"}, "changed the token"),
        ({"encoder": "codec.py:text"}, "returned str, not bytes"),
        ({"encoder": "codec.py:nothing"}, "cannot be loaded"),
        ({"encoder": "codec.py:ENCODER"}, "cannot be loaded"),
        ({"encoder": "no.py:encode"}, "cannot be loaded"),
        ({"encoder_command": [sys.executable, "codec.py", "bad"]}, "printed no base64"),
        ({"encoder_command": [sys.executable, "-c", ""]}, "it ended"),
        ({"encoder_command": ["no-such-program"]}, "cannot be started"),
    ],
)
def test_a_wrong_encoder_is_explained(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    (tmp_path / "codec.py").write_text(ENCODER)

    def encode() -> bytes:
        encoder = encoder_of(fields.get("encoder", ""), fields.get("encoder_command", []), str(tmp_path))
        assert encoder is not None
        return check_encoded(encoder, VALUE.replace("{id}", TOKEN), TOKEN)

    with pytest.raises(UsageError, match=problem):
        encode()
