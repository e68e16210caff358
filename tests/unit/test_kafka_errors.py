"""Error codes and addresses: the harness's own table of codes agrees with kafka-python's."""

from __future__ import annotations

import pytest
from kafka.errors import for_code

from harness.base.addresses import parse_address, parse_bootstrap
from harness.kafka.errors import ErrorCode, KafkaAnswerError, check, error_name


def test_the_codes_have_the_names_of_kafka_python() -> None:
    codes = [code for code in ErrorCode if code != ErrorCode.NONE]
    assert {code: for_code(code).message for code in codes} == {code: code.name for code in codes}
    assert [error_name(code) for code in ErrorCode] == [code.name for code in ErrorCode]


def test_an_error_code_is_raised_with_its_name() -> None:
    check("topic orders", 0)
    with pytest.raises(KafkaAnswerError, match=r"^topic orders: UNKNOWN_TOPIC_OR_PARTITION \(3\)$") as raised:
        check("topic orders", 3)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not raised.value.denied
    assert all(KafkaAnswerError("topic orders", code).denied for code in (29, 44))


def test_addresses_are_host_and_port() -> None:
    assert parse_bootstrap("a:1, b.c:65535") == [("a", 1), ("b.c", 65535)]
    assert parse_bootstrap("[::1]:9092") == [("::1", 9092)]
    for text in ("", "a", ":1", "a:", "a:b", "a:0", "a:65536", "a:-1"):
        with pytest.raises(ValueError, match='is not "host:port"'):
            parse_address(text)
