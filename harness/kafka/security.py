"""TLS and SASL settings of a listener, for the client library, raw requests and Spark.

The harness writes these settings to files, such as the configuration of a client or of the Spark job. The
settings therefore contain references to secrets, never the secrets.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from harness.base.errors import UsageError
from harness.base.secrets import beware, look_up, remember
from harness.kafka.access_token import login_with_token
from harness.kafka.errors import check

if TYPE_CHECKING:
    from harness.kafka.connection import RawConnection

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
_LOGIN: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_OAUTH_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_ALLOWED_URLS: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
_JAVA_OPTIONS: Final = "JDK_JAVA_OPTIONS"
_ENV: Final = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
_FILES: Final = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
_PASSWORD, _KEY = "EOS_SASL_PASSWORD", "EOS_TLS_KEY"  # names of environment variables, not secrets
_OPENSSL_S: Final = 30.0
_CHECK_KEY: Final = "check security.key and security.key_password"
_PLAIN_KEY: Final = b"-----BEGIN PRIVATE "  # only an unencrypted PKCS#8 key begins like this


class Security(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """TLS and SASL settings of a listener. Passwords are given as references to secrets, such as env:NAME."""

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism = "PLAIN"
    username: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = ""
    token_url: str = ""
    """The token endpoint for OAUTHBEARER; username and password are then the client's id and secret."""
    scope: str = ""
    check_host: bool = True
    principal: str = ""
    """The principal that the brokers use for this user. Set it if it is not `User:` + username. For a client
    certificate, it is the subject of the certificate.
    """

    @property
    def tls(self) -> bool:
        """True if the connection is encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """True if the listener requires a SASL login."""
        return self.protocol.startswith("SASL")

    @property
    def oauth(self) -> bool:
        """True if the login uses a token, which a token endpoint issues."""
        return self.sasl and self.mechanism == "OAUTHBEARER"

    def check_passwords(self) -> None:
        """Raise UsageError if the source of a password does not exist, before anything is connected."""
        for source in filter(None, (self.password, self.key_password)):
            look_up(source)

    @property
    def who(self) -> str:
        """The principal to use in ACLs; a placeholder if only the certificate contains the principal."""
        if self.principal:
            return self.principal
        if self.sasl:
            return f"User:{self.username}"
        return "User:SUBJECT-OF-THE-CERTIFICATE" if self.certificate else "User:ANONYMOUS"

    def client(self) -> dict[str, Any]:
        """Return the settings for a confluent-kafka client."""
        if self.protocol == "PLAINTEXT":
            return {}
        beware()  # redact from now on, even if the settings contain no password that look_up() resolves
        config: dict[str, Any] = {"security.protocol": self.protocol}
        if self.oauth:
            config |= {
                "sasl.mechanism": self.mechanism,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.username,
                "sasl.oauthbearer.client.secret": look_up(self.password),
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
            }
            config |= {"sasl.oauthbearer.scope": self.scope} if self.scope else {}
        elif self.sasl:
            config |= {"sasl.mechanism": self.mechanism, "sasl.username": self.username}
            config["sasl.password"] = look_up(self.password)
        if self.tls:
            files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
            config |= {f"ssl.{name}.location": path for name, path in files.items() if path}
            if self.key_password:
                config["ssl.key.password"] = look_up(self.key_password)
            config["ssl.endpoint.identification.algorithm"] = "https" if self.check_host else "none"
        return config

    def spark(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source, without secrets.

        Kafka's Java client reads the secrets from the environment variables that `for_java` sets.
        """
        if self.protocol == "PLAINTEXT":
            return {}
        options = {
            "security.protocol": self.protocol,
            "config.providers": "env,dir",
            "config.providers.env.class": _ENV,
            "config.providers.dir.class": _FILES,
        }
        if self.sasl:
            options["sasl.mechanism"] = self.mechanism
            name, secret = ("clientId", "clientSecret") if self.oauth else ("username", "password")
            scope = f' scope="{_quoted(self.scope)}"' if self.oauth and self.scope else ""
            options["sasl.jaas.config"] = (
                f'{_LOGIN[self.mechanism]} required {name}="{_quoted(self.username)}" '
                f'{secret}="${{env:{_PASSWORD}}}"{scope};'
            )
        if self.oauth:
            options["sasl.login.callback.handler.class"] = _OAUTH_HANDLER
            options["sasl.oauthbearer.token.endpoint.url"] = self.token_url
        if self.tls:
            if self.ca:
                options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
            if self.certificate:
                options["ssl.keystore.type"] = "PEM"
                options["ssl.keystore.certificate.chain"] = _content(self.certificate)
                options["ssl.keystore.key"] = f"${{env:{_KEY}}}"
            options["ssl.endpoint.identification.algorithm"] = "https" if self.check_host else ""
        return {f"kafka.{name}": value for name, value in options.items()}

    def for_java(self) -> None:
        """Put the secrets into environment variables of this process, where its Java clients read them."""
        if self.sasl:
            os.environ[_PASSWORD] = _quoted(look_up(self.password))
        if self.oauth:
            # Kafka's Java client sends a secret only to the addresses that this property lists.
            options = os.environ.get(_JAVA_OPTIONS, "")
            os.environ[_JAVA_OPTIONS] = f"{options} {_ALLOWED_URLS}{self.token_url}".strip()
        if self.key:
            os.environ[_KEY] = self._plain_key()

    @property
    def converts_key(self) -> bool:
        """True if the private key must be converted to unencrypted PKCS#8.

        Kafka's Java client requires this, because it cannot read keys that are encrypted with PBES2.
        """
        return bool(self.key) and _PLAIN_KEY not in self.key_bytes()

    def key_bytes(self) -> bytes:
        """Return the bytes of the private key file; raise UsageError if the file cannot be read."""
        try:
            return Path(self.key).read_bytes()
        except OSError as error:
            raise UsageError(f"the key {self.key} could not be read: {error.strerror}", _CHECK_KEY) from error

    def _plain_key(self) -> str:
        """Return the private key without encryption, for Kafka's Java client.

        From then on, this process redacts the key. The key must never be written to disk.
        """
        key = self._converted() if self.converts_key else self.key_bytes().decode(errors="replace")
        remember(key)
        return key

    def _converted(self) -> str:
        password = look_up(self.key_password) if self.key_password else ""
        problem = f"the key {self.key} could not be read"
        try:
            done = subprocess.run(
                ["openssl", "pkey", "-in", self.key, "-passin", "stdin"],
                input=f"{password}\n",
                capture_output=True,
                text=True,
                timeout=_OPENSSL_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise UsageError(f"{problem}: there is no openssl program", "install openssl") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{problem}: openssl failed with {type(error).__name__}", _CHECK_KEY) from error
        if done.returncode != 0:
            raise UsageError(f"{problem}: {done.stderr.strip()[-200:]}", _CHECK_KEY)
        return done.stdout

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """Return the connection wrapped in TLS, or the connection itself if the listener does not use TLS."""
        if not self.tls:
            return plain
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            raise UsageError(
                f"{self.ca} cannot be used: {error}", "check security.ca: it must be PEM"
            ) from error
        context.check_hostname = self.check_host
        if self.certificate:
            password = look_up(self.key_password) if self.key_password else None
            try:
                context.load_cert_chain(self.certificate, self.key or None, password)
            except OSError as error:  # OpenSSL refused the files, or a file cannot be read
                raise UsageError(
                    f"{self.certificate} and its key cannot be used: {error}",
                    "check certificate, key and key_password: both files must be PEM and match each other",
                ) from error
        return context.wrap_socket(plain, server_hostname=host)

    def log_in(self, connection: RawConnection) -> None:
        """Log in with SASL over this connection, if the listener requires a login."""
        if not self.sasl:
            return
        if self.oauth:
            login_with_token(connection, self.token_url, self.username, look_up(self.password), self.scope)
            return
        from kafka.net.sasl.plain import SaslMechanismPlain
        from kafka.net.sasl.scram import SaslMechanismScram
        from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

        kind = SaslMechanismPlain if self.mechanism == "PLAIN" else SaslMechanismScram
        login = kind(
            sasl_mechanism=self.mechanism,
            sasl_plain_username=self.username,
            sasl_plain_password=look_up(self.password),
        )
        answer = connection.call(SaslHandshakeRequest(mechanism=self.mechanism, version=1))
        check(f"{self.mechanism} of {self.username}", answer.error_code)
        while not login.is_done():
            answer = connection.call(SaslAuthenticateRequest(auth_bytes=login.auth_bytes(), version=1))
            check(f"login of {self.username}", answer.error_code)
            login.receive(answer.auth_bytes)


PLAINTEXT: Final = Security()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _content(path: str) -> str:
    """Return a reference to the content of a file. Kafka's DirectoryConfigProvider resolves the reference."""
    file = Path(path).resolve()
    return f"${{dir:{file.parent}:{file.name}}}"
