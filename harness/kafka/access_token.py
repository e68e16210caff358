"""Login with OAUTHBEARER: a token of the token endpoint, for the client credentials of OAuth 2."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Final

from harness.base.errors import UsageError
from harness.base.secrets import remember
from harness.kafka.errors import check

if TYPE_CHECKING:
    from harness.kafka.connection import RawConnection

_ANSWER_S: Final = 10.0
_USED_SHARE: Final = 0.5
"""A token is used for this share of its lifetime, so that none ends during a login."""
_tokens: Final[dict[tuple[str, str, str], tuple[str, float]]] = {}
"""By endpoint, client id and scope: a token, and the time until which it is used."""


def login_with_token(
    connection: RawConnection, url: str, client_id: str, secret: str, scope: str = ""
) -> None:
    """Log in to a broker over this connection with a token of the endpoint at `url`."""
    from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

    token = access_token(url, client_id, secret, scope)
    answer = connection.call(SaslHandshakeRequest(mechanism="OAUTHBEARER", version=1))
    check(f"OAUTHBEARER of {client_id}", answer.error_code)
    first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    answer = connection.call(SaslAuthenticateRequest(auth_bytes=first, version=1))
    if answer.error_code == 0 and answer.auth_bytes:  # the reason of a refusal; the broker expects an answer
        answer = connection.call(SaslAuthenticateRequest(auth_bytes=b"\x01", version=1))
    check(f"login of {client_id}", answer.error_code)


def access_token(url: str, client_id: str, secret: str, scope: str = "") -> str:
    """Return a token of the endpoint, or the one that this process got before if it is still fresh."""
    key = url, client_id, scope
    token, until = _tokens.get(key, ("", 0.0))
    if time.monotonic() < until:
        return token
    token, lifetime = _fetch(url, client_id, secret, scope)
    _tokens[key] = token, time.monotonic() + lifetime * _USED_SHARE
    return token


def _fetch(url: str, client_id: str, secret: str, scope: str) -> tuple[str, float]:
    """Return a new token and its lifetime in seconds."""
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    login = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    remember(login)
    request = urllib.request.Request(  # noqa: S310  # the loaders accept only http and https
        url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {login}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
            found = json.load(answer)
        token, lifetime = str(found["access_token"]), float(found.get("expires_in", 0))
    except urllib.error.HTTPError as error:
        error.close()
        raise _error(url, f"answers {error.code} {error.reason}") from error
    except OSError as error:
        raise _error(url, f"does not answer: {getattr(error, 'reason', error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise _error(url, "does not answer with an access_token in JSON") from error
    remember(token)
    return token, lifetime


def _error(url: str, problem: str) -> UsageError:
    return UsageError(
        f"the token endpoint {url} {problem}", "check its address, and the id and the secret of the client"
    )
