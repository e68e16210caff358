"""Placeholders in the application's command, environment and files are replaced; unknown ones are errors."""

from __future__ import annotations

import pytest

from harness.app.app_spec import RestartLimit, StopRule
from harness.app.launch_template import Placeholder, check_text, fill, placeholders, uses
from harness.base.errors import UsageError


def shout(found: Placeholder) -> str:
    return str(found).strip("{}").upper()


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--servers={bootstrap}", "--servers=BOOTSTRAP"),
        ("{topic:in.v1} {topic:out}", "TOPIC:IN.V1 TOPIC:OUT"),
        ("{{bootstrap}}", "{bootstrap}"),
        ("${group} ${{group}}", "${group} ${group}"),
        ('{"a": {"b": 1}, "s": "{state}"}', '{"a": {"b": 1}, "s": "STATE"}'),
        ("{topic} {bootstrap:x} {brokers}", "{topic} {bootstrap:x} {brokers}"),
        ("{}", "{}"),
    ],
)
def test_known_placeholders_are_replaced(text: str, filled: str) -> None:
    assert fill(text, shout) == filled


def test_a_value_is_not_searched_for_placeholders() -> None:
    assert fill("{group}", lambda _: "{state}") == "{state}"


@pytest.mark.parametrize("text", ["{boostrap}", "{topic}", "{bootstrap:x}", "{topics:a}"])
def test_an_unknown_placeholder_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not a placeholder") as raised:
        check_text(text)
    assert f"write {{{text}}} for literal braces" in raised.value.hint


@pytest.mark.parametrize("text", ["{bootstrap}", "{topic:a}", "{{boostrap}}", "${boostrap}", '{"a": 1}'])
def test_other_braces_are_no_error(text: str) -> None:
    check_text(text)


def test_a_text_uses_a_placeholder_only_with_its_argument() -> None:
    assert uses(["a", "{topic:orders}"], "topic", "orders")
    assert not uses(["{topic:orders2}", "{{topic:orders}}"], "topic", "orders")
    assert list(placeholders("{port:a}{group}")) == [("port", "a"), ("group", "")]


def test_a_stop_rule_has_a_signal_and_a_limit() -> None:
    rule = StopRule.parse(" SIGINT   1m ")
    assert (rule, rule.signal.name, float(rule.limit)) == ("SIGINT 1m", "SIGINT", 60)


@pytest.mark.parametrize("text", ["SIGTERM", "30s", "SIGKILL 3s", "SIGTERM 30", "SIGTERM 3s 4s", 7])
def test_other_stop_rules_are_errors(text: object) -> None:
    with pytest.raises(ValueError, match=r"is not"):
        StopRule.parse(text)


def test_a_restart_limit_has_a_number_and_a_time() -> None:
    limit = RestartLimit.parse("3 in 1m")
    assert (limit, limit.most, float(limit.within)) == ("3 in 1m", 3, 60)


@pytest.mark.parametrize("text", ["3", "3 in", "x in 60s", "3 in 60", 7])
def test_other_restart_limits_are_errors(text: object) -> None:
    with pytest.raises(ValueError, match=r"is not"):
        RestartLimit.parse(text)
