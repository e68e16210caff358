"""Tokens for OAUTHBEARER: one request for many logins, and errors that name the endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.base.ports import free_ports
from harness.base.secrets import redact
from harness.kafka.access_token import access_token
from tests.external.token_endpoint import TokenEndpoint

SECRET = "battery-staple"


def test_a_token_is_used_for_more_than_one_login_and_redacted(tmp_path: Path) -> None:
    TokenEndpoint.write_keys(tmp_path)
    endpoint = TokenEndpoint(tmp_path, "chaos", SECRET)
    with endpoint.serve() as url:
        token = access_token(url, "chaos", SECRET)
        assert access_token(url, "chaos", SECRET) == token
        assert endpoint.issued == 1
        access_token(url, "chaos", SECRET, "another scope")
        assert endpoint.issued == 2
    assert token not in redact(f"token {token}")


def test_a_wrong_secret_is_an_error_without_the_secret(tmp_path: Path) -> None:
    with TokenEndpoint(tmp_path, "chaos", SECRET).serve() as url, pytest.raises(UsageError) as error:
        access_token(url, "chaos", "another-secret")
    assert error.value.message == f"the token endpoint {url} answers 401 Unauthorized"
    assert "the secret of the client" in error.value.hint


def test_an_endpoint_that_is_not_there_is_an_error() -> None:
    (port,) = free_ports(1)
    with pytest.raises(UsageError, match=r"does not answer: .*refused"):
        access_token(f"http://127.0.0.1:{port}/token", "chaos", SECRET)
