"""Inputs in Avro's and Protobuf's encodings, written by an encoder of the user and read by an application."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.run import make_run
from harness.scenario import load
from harness.scenario.plan import draw

pytestmark = [pytest.mark.cluster, pytest.mark.soak]
EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"
CODEC = '''
"""Orders in Avro (a string and a long) and in Protobuf (fields 1 and 2), encoded by hand."""
import base64, json, sys


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def read_varint(data, at):
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return number, at


def avro(text):
    order = json.loads(text)
    name = order["order"].encode()
    return varint(2 * len(name)) + name + varint(2 * order["amount"])


def read_avro(data):
    length, at = read_varint(data, 0)
    end = at + length // 2
    return {"order": data[at:end].decode(), "amount": read_varint(data, end)[0] // 2}


def protobuf(text):
    order = json.loads(text)
    name = order["order"].encode()
    return b"\\x0a" + varint(len(name)) + name + b"\\x10" + varint(order["amount"])


def read_protobuf(data):
    length, at = read_varint(data, 1)
    return {"order": data[at:at + length].decode(), "amount": read_varint(data, at + length + 1)[0]}


if __name__ == "__main__":
    for line in sys.stdin:
        print(base64.b64encode(protobuf(line)).decode(), flush=True)
'''
ENCODERS = {
    "avro": 'encoder = "codec.py:avro"',
    "protobuf": f"encoder_command = {json.dumps([sys.executable, 'codec.py'])}",
}


@pytest.mark.parametrize("encoding", ENCODERS)
def test_an_encoded_token_is_found_in_encoded_outputs(
    cluster: Cluster, tmp_path: Path, encoding: str
) -> None:
    app = (EXAMPLE / "app.py").read_text()
    dumped = 'json.dumps({"invoice_for": content["order"], "total": content["amount"] * 1.2}).encode()'
    changes = {
        "json.loads(order.value())": f"codec.read_{encoding}(order.value())",
        dumped: f'codec.{encoding}(json.dumps({{**content, "amount": 2 * content["amount"]}}))',
        "import json\n": "import codec\nimport json\n",
    }
    for old, new in changes.items():
        assert old in app
        app = app.replace(old, new)
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "codec.py").write_text(CODEC)
    text = (
        (EXAMPLE / "orders.toml").read_text().replace("aborted = 0.1", f"aborted = 0.1\n{ENCODERS[encoding]}")
    )
    (tmp_path / "orders.toml").write_text(text)
    changes = {"plan.duration": "6s", "plan.steady": "2s", "fault.1.weight": "0.0001"}
    changes |= {"verify.witnesses": '["spark", "reader"]'}

    scenario = load(tmp_path / "orders.toml", changes)
    outcome = make_run(cluster, scenario, draw(scenario, 1), tmp_path / "runs").execute()

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    (contract,) = (result for result in outcome.judgement.results if result.property == "contract")
    assert contract.compared > 200
