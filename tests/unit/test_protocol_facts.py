"""Published numbers about exactly-once: comparison with observed values, formats, library defaults."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from harness.kafka.librdkafka import client_defaults
from harness.walkthroughs.protocol_facts import Fact, _format_value, table


def test_a_fact_is_the_same_only_if_both_values_are_equal() -> None:
    assert Fact("replicas", "3", "3", "cluster").comparison == "same"
    assert Fact("replicas", "3", "3 or 1", "cluster").comparison == "different"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("transaction.max.timeout.ms", "900000", "15 min"),
        ("transactional.id.expiration.ms", "604800000", "7 d"),
        ("transaction.timeout.ms", "1500", "1.5 s"),
        ("transaction.timeout.ms", "90000", "90 s"),
        ("acks", "-1", "all"),
        ("acks", "1", "1"),
        ("retries", "2147483647", "2147483647"),
    ],
)
def test_values_are_formatted_as_published_texts_write_them(name: str, value: str, text: str) -> None:
    assert _format_value(name, value) == text


def test_the_table_has_a_line_for_each_fact_and_marks_it() -> None:
    lines = table([Fact("epoch", "2", "1", "probe"), Fact("a long name", "x", "x", "client")]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split("|")[1:-1] == [" epoch       ", " 2       ", " 1     ", " probe  ", " different "]
    assert lines[3].rstrip(" |").endswith("same")


def test_defaults_are_read_from_the_loaded_library() -> None:
    """The lookup finds both client settings and topic settings; a client accepts the returned defaults."""
    asked = ("transaction.timeout.ms", "message.timeout.ms", "enable.idempotence")
    found = client_defaults(asked)
    assert set(found) == set(asked)
    Producer({**found, "log_level": 0})
    with pytest.raises(KafkaException, match=r"message\.timeout\.ms"):
        # Without a configured transaction.timeout.ms, the library refuses a message.timeout.ms above the
        # default of transaction.timeout.ms. So a refusal one millisecond above proves that default.
        Producer({"transactional.id": "x", "message.timeout.ms": int(found["transaction.timeout.ms"]) + 1})


def test_an_unknown_setting_of_the_library_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"no\.such\.setting"):
        client_defaults(["no.such.setting"])
