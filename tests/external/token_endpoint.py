"""Token endpoint for the stand-in cluster: it issues tokens that its brokers accept.

The tokens are signed (RS256), and the brokers check them with Kafka's own validator and the public key.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

_KEY: Final = "token.key"
_ID: Final = "key-1"
_LIFETIME_S: Final = 600


class TokenEndpoint:
    """Issue tokens for one client over HTTP, and count them."""

    def __init__(self, keys: Path, client_id: str, secret: str) -> None:
        self.issued = 0
        self._key = keys / _KEY
        self._client_id = client_id
        self._login = "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()

    @staticmethod
    def write_keys(folder: Path) -> None:
        """Make a key to sign tokens, and jwks.json with its public half."""
        key = folder / _KEY
        _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(key))
        modulus = _openssl("rsa", "-in", str(key), "-noout", "-modulus").decode().strip().split("=")[1]
        public = {"kty": "RSA", "kid": _ID, "alg": "RS256", "use": "sig", "e": "AQAB"}
        public["n"] = _encoded(bytes.fromhex(modulus))
        (folder / "jwks.json").write_text(json.dumps({"keys": [public]}))

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Answer requests for tokens; yield the address."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                good = self.headers.get("Authorization") == endpoint._login
                body = endpoint._answer() if good else b'{"error":"invalid_client"}'
                self.send_response(200 if good else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/token"
            finally:
                server.shutdown()

    def _answer(self) -> bytes:
        self.issued += 1
        now = int(time.time())
        claims = {
            "sub": self._client_id,
            "iat": now,
            "exp": now + _LIFETIME_S,
            "aud": "kafka",
            "scope": "all",
        }
        parts = [_encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": _ID}, claims)]
        signed = ".".join(parts)
        signature = _encoded(_openssl("dgst", "-sha256", "-sign", str(self._key), text=signed.encode()))
        token = {"access_token": f"{signed}.{signature}", "expires_in": _LIFETIME_S, "token_type": "Bearer"}
        return json.dumps(token).encode()


def _openssl(*arguments: str, text: bytes = b"") -> bytes:
    return subprocess.run(
        ["openssl", *arguments], input=text, check=True, capture_output=True, timeout=60
    ).stdout


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
