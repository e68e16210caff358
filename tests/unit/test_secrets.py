"""Secrets are resolved from references, and then redacted in outputs and files."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from threading import Event

import click
import pytest

from harness.base import secrets
from harness.base.errors import UsageError
from harness.base.events import PhaseEvent, redacted
from harness.base.secrets import beware, look_up, redact
from harness.evidence.history import Error, HistoryWriter
from harness.evidence.run_directory import write_atomic
from harness.kafka.security import Security

KIND = "PRIVATE"  # separate, so that this file does not contain the header of a key
VALUE = 'tr0ub"4dor&3\\'


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    """Resolve a secret in this process, and return its value."""
    monkeypatch.setenv("A_SECRET", VALUE)
    return look_up("env:A_SECRET")


def test_a_secret_comes_from_the_environment_or_a_file(known: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("of the file\n")
    assert (known, look_up(f"file:{tmp_path}/password")) == (VALUE, "of the file")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("env:NO_SUCH_NAME", "the environment variable NO_SUCH_NAME is not set"),
        ("file:/no/such/file", "there is no file /no/such/file"),
        ("hunter22", "not given as a reference"),
        ("env:", "not given as a reference"),
    ],
)
def test_a_missing_secret_is_an_error_that_names_the_reference(reference: str, message: str) -> None:
    with pytest.raises(UsageError) as found:
        look_up(reference)
    assert message in found.value.message
    assert "hunter22" not in str(found.value)


def test_text_is_unchanged_while_no_secret_is_known() -> None:
    assert redact("password = anything") == "password = anything"


def test_a_process_can_redact_before_it_has_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    beware()
    print("ssl.key.password=another-one")
    assert out.getvalue() == "ssl.key.password=[redacted]\n"


def test_a_client_that_logs_in_with_a_certificate_redacts_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_wary", Event())
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    Security(protocol="SSL", certificate="/me.pem", key="/me.key").client()
    assert redact("password = anything") == "password = [redacted]"


def test_an_unreadable_secret_file_is_an_error_without_its_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"hunter22\xff")
    with pytest.raises(UsageError, match="it is not UTF-8 text") as found:
        look_up(f"file:{path}")
    assert "hunter" not in str(found.value)

    def denied(_: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", denied)
    with pytest.raises(UsageError, match=f"the secret in {path} could not be read: Permission denied"):
        look_up(f"file:{path}")


@pytest.mark.parametrize(
    "text",
    [
        f"printed {VALUE} in text",
        json.dumps({"text": VALUE}),
        "sasl.password=another-one,",
        "'ssl.key.password': 'another-one'",
        '{"token": "another-one"}',
        json.dumps({"message": '{"client.secret": "another-one"}'}),
        f"-----BEGIN RSA {KIND} KEY-----\nanother-one\n-----END RSA {KIND} KEY-----",
    ],
)
def test_secrets_and_text_that_looks_like_one_are_redacted(known: str, text: str) -> None:
    clean = redact(text)
    assert "[redacted]" in clean
    assert known not in clean
    assert "another-one" not in clean
    assert clean == redact(clean)
    if text.startswith("{"):
        assert json.loads(clean).keys() == json.loads(text).keys()


def test_references_to_secrets_are_not_redacted(known: str) -> None:  # noqa: ARG001
    text = '{"password":"env:A_SECRET","key_password":"file:/run/key"}'
    assert redact(text) == text


def test_outputs_files_histories_and_events_are_redacted(
    known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    look_up("env:A_SECRET")
    click.echo(f"out {known}")
    print(f"err {known}", file=sys.stderr)
    write_atomic(tmp_path / "file", f"file {known}".encode())
    with HistoryWriter(tmp_path / "h.jsonl", run="ab12cd34", client="c", role="r") as history:
        history.info(history.invoke("f"), Error(code=1, name="X", message=f"history {known}"))
    event = redacted(PhaseEvent(name="heal", detail=f"event {known}"))

    assert out.getvalue() == "out [redacted]\n"
    assert err.getvalue() == "err [redacted]\n"
    assert (tmp_path / "file").read_text() == "file [redacted]"
    assert "history [redacted]" in (tmp_path / "h.jsonl").read_text()
    assert event == PhaseEvent(name="heal", detail="event [redacted]")


def test_options_for_spark_contain_no_secret(known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EOS_SASL_PASSWORD", raising=False)
    security = Security(protocol="SASL_PLAINTEXT", username="me", password="env:A_SECRET")
    options = security.spark()
    assert known not in str(options)
    assert 'password="${env:EOS_SASL_PASSWORD}"' in options["kafka.sasl.jaas.config"]
    monkeypatch.setenv("EOS_SASL_PASSWORD", "")
    security.for_java()
    import os

    # Java's parser of the JAAS configuration reads this value inside quotation marks. Therefore quotation
    # marks and backslashes in the password are escaped.
    assert os.environ["EOS_SASL_PASSWORD"] == 'tr0ub\\"4dor&3\\\\'


@pytest.mark.timeout(60)
def test_redaction_of_a_long_word_takes_linear_time() -> None:
    """A page may contain a word of a hundred thousand letters; quadratic time would mean minutes."""
    beware()
    text = f"{'x' * 1_000_000} my.password={'y' * 10}"
    assert redact(text) == text[:-10] + "[redacted]"
