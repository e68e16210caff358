"""Security settings from a client.properties file of Kafka, as its own tools take with --command-config.

Keys of librdkafka, such as sasl.username and ssl.ca.location, are read as well. Certificates and keys must be
PEM files, because every client library of the harness reads these.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final, get_args

from harness.base.errors import UsageError
from harness.base.secrets import remember
from harness.base.strict_toml import nearest, text_in
from harness.kafka.security import Mechanism, Protocol, Security

_ENV: Final = "EOS_PROPERTIES_PASSWORD", "EOS_PROPERTIES_KEY_PASSWORD"
"""Environment variables in which this process keeps the passwords of the file."""
_JAAS: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|(\S+?))(?=[\s;]|$)""")
_FILES: Final = {
    "ssl.truststore.location": "ca",
    "ssl.ca.location": "ca",
    "ssl.keystore.location": "certificate",
    "ssl.certificate.location": "certificate",
    "ssl.key.location": "key",
}
_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")
_TOKEN_KEYS: Final = (
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    *(_CLIENT_ID := ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")),
    *(
        _CLIENT_SECRET := (
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.client.secret",
        )
    ),
)
_OTHERS: Final = (
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.login.callback.handler.class",
    *_TOKEN_KEYS,
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
_STORE_PASSWORDS: Final = ("ssl.truststore.password", "ssl.keystore.password")
_PEM_START: Final = b"-----BEGIN "
_PEM_HINT: Final = (
    "convert it: keytool -importkeystore -srckeystore {file} -destkeystore store.p12 -deststoretype PKCS12, "
    "then openssl pkcs12 -in store.p12 -nodes -out store.pem; write {key}=store.pem and {type}=PEM, and "
    "remove the password of the store"
)
_NO_LOGIN: Final = "; no client of the harness logs in with Kerberos"


def read_security(path: Path) -> Security:
    """Return the security settings of a file; raise UsageError if a setting is not supported."""
    found = _properties(path, text_in(path))
    values: dict[str, Any] = {"protocol": _one_of(path, found, "security.protocol", Protocol, "PLAINTEXT")}
    if values["protocol"].startswith("SASL"):
        key = "sasl.mechanism" if "sasl.mechanism" in found else "sasl.mechanisms"
        values["mechanism"] = _one_of(path, found, key, Mechanism, "PLAIN")
    _check_stores(path, found)
    known = [*_FILES, *_TYPES, *_OTHERS]
    for key in found:
        if key.startswith(("sasl.", "ssl.", "security.")) and key not in known:
            raise _error(path, key, "is not supported", nearest(key, known, "supported are"))
    if values["protocol"].startswith("SASL"):
        values |= _login(path, found)
    if values["protocol"].endswith("SSL"):
        values |= _tls(path, found)
    return Security(**values)


def _check_stores(path: Path, found: dict[str, str]) -> None:
    """Raise UsageError for a store that is no PEM file, and for the password of a store."""
    for kind in _TYPES:
        key = kind.replace(".type", ".location")
        if key not in found:
            continue
        store = found.get(kind, "PEM" if _is_pem(_file_of(path, found[key])) else "JKS").upper()
        if store != "PEM":
            hint = _PEM_HINT.format(file=found[key], key=key, type=kind)
            raise _error(path, key, f"{store} is not supported, only PEM is", hint)
    for key in _STORE_PASSWORDS:
        if key in found:
            raise _error(path, key, "is for a JKS or PKCS12 store; a PEM file has none", "remove the line")


def _file_of(path: Path, name: str) -> Path:
    """Return the path of a file that a properties file names; it is relative to the properties file."""
    file = Path(name).expanduser()
    return file if file.is_absolute() else path.parent / file


def _is_pem(file: Path) -> bool:
    """Return whether a file is named .pem, or can be read and begins with a PEM block."""
    try:
        return file.suffix == ".pem" or (file.is_file() and file.read_bytes().lstrip().startswith(_PEM_START))
    except OSError:
        return False


def bootstrap_in(path: Path) -> str:
    """Return the bootstrap servers that a file names, or ""."""
    return _properties(path, text_in(path)).get("bootstrap.servers", "")


def _properties(path: Path, text: str) -> dict[str, str]:
    """Parse the text of a properties file: `key=value` or `key: value`; a backslash continues a line."""
    found: dict[str, str] = {}
    for number, line in enumerate(re.sub(r"\\\n\s*", "", text).splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        match = re.match(r"([\w.-]+)\s*(?:[=:]\s*|\s+|$)(.*)", stripped)
        if match is None:
            raise UsageError(f"{path}:{number}: not a property", "write key=value")
        found[match[1]] = _plain(match[2].strip())
    return found


def _plain(text: str | None) -> str:
    """Return a text without its escapes: a backslash makes the next character literal."""
    return re.sub(r"\\(.)", r"\1", text or "")


def _one_of(path: Path, found: dict[str, str], key: str, kinds: Any, default: str) -> str:
    value = found.get(key, default).upper()
    if value not in get_args(kinds):
        hint = f"supported are {', '.join(get_args(kinds))}" + (_NO_LOGIN if kinds is Mechanism else "")
        raise _error(path, key, f"{value!r} is not supported", hint)
    return value


def _login(path: Path, found: dict[str, str]) -> dict[str, str]:
    """Return user name and password, from the JAAS configuration or from the keys of librdkafka."""
    parts = {m[1]: _plain(m[2] or m[3] or m[4]) for m in _JAAS.finditer(found.get("sasl.jaas.config", ""))}
    if found.get("sasl.mechanism", found.get("sasl.mechanisms", "")).upper() == "OAUTHBEARER":
        return _token_login(path, found, parts)
    user = found.get("sasl.username", parts.get("username", ""))
    password = found.get("sasl.password", parts.get("password", ""))
    if not (user and password):
        raise _error(
            path,
            "sasl.jaas.config",
            "has no username and password",
            'write ... required username="USER" password="PASSWORD"; (or sasl.username and sasl.password)',
        )
    return {"username": user, "password": _kept(_ENV[0], password)}


def _token_login(path: Path, found: dict[str, str], parts: dict[str, str]) -> dict[str, str]:
    """Return the client's id and secret, the address of the token endpoint, and the scope."""
    values = {
        "username": next((found[key] for key in _CLIENT_ID if key in found), parts.get("clientId", "")),
        "password": next(
            (found[key] for key in _CLIENT_SECRET if key in found), parts.get("clientSecret", "")
        ),
        "token_url": found.get("sasl.oauthbearer.token.endpoint.url", ""),
        "scope": found.get("sasl.oauthbearer.scope", parts.get("scope", "")),
    }
    for field, key in (("username", _CLIENT_ID[0]), ("password", _CLIENT_SECRET[0])):
        if not values[field]:
            raise _error(
                path, key, "is missing", "only the client credentials of a token endpoint are supported"
            )
    if not values["token_url"].startswith(("http://", "https://")):
        hint = "write the address of the token endpoint, such as https://login.example/oauth2/token"
        raise _error(path, "sasl.oauthbearer.token.endpoint.url", "is not an address", hint)
    return values | {"password": _kept(_ENV[0], values["password"])}


def _tls(path: Path, found: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, field in _FILES.items():
        if key not in found:
            continue
        values[field] = str(_file_of(path, found[key]))
        if not Path(values[field]).is_file():
            raise _error(path, key, f"there is no file {values[field]}", "correct the path")
    if "certificate" in values:
        values.setdefault("key", values["certificate"])
    if found.get("ssl.key.password"):
        values["key_password"] = _kept(_ENV[1], found["ssl.key.password"])
    algorithm = found.get("ssl.endpoint.identification.algorithm", "https")
    return values | {"check_host": algorithm.lower() not in ("", "none")}


def _kept(name: str, secret: str) -> str:
    """Keep a secret in this process's environment, and return a reference to it."""
    remember(secret)
    os.environ[name] = secret
    return f"env:{name}"


def _error(path: Path, key: str, problem: str, hint: str) -> UsageError:
    return UsageError(f"{path}: {key}: {problem}", hint)
