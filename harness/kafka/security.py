"""How a listener is spoken to: TLS, SASL; the same for the client library, raw requests and Spark.

It travels in files (the spec of a client, the job of Spark) and holds no secret: only where secrets stand.
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

if TYPE_CHECKING:
    from harness.kafka.connection import RawConnection

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_LOGIN: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_ENV: Final = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
_FILES: Final = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
_PASSWORD, _KEY = "EOS_SASL_PASSWORD", "EOS_TLS_KEY"  # names, no secrets
_OPENSSL_S: Final = 30.0
_LOOK: Final = "look at security.key and security.key_password"
_PLAIN_KEY: Final = b"-----BEGIN PRIVATE "  # encrypted or of an older form it begins otherwise


class Security(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """TLS and SASL of a listener; passwords are named by where they stand."""

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism = "PLAIN"
    username: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = ""
    check_host: bool = True
    principal: str = ""
    """What the brokers call this user, where that is not their name: of a certificate it is the subject."""

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether a user logs in."""
        return self.protocol.startswith("SASL")

    @property
    def who(self) -> str:
        """The user as rules about rights name it, as far as this can be told."""
        if self.principal:
            return self.principal
        if self.sasl:
            return f"User:{self.username}"
        return "User:SUBJECT-OF-THE-CERTIFICATE" if self.certificate else "User:ANONYMOUS"

    def client(self) -> dict[str, Any]:
        """The settings of confluent-kafka."""
        if self.protocol == "PLAINTEXT":
            return {}
        beware()  # with a certificate alone no password is ever looked up
        found: dict[str, Any] = {"security.protocol": self.protocol}
        if self.sasl:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": self.username}
            found["sasl.password"] = look_up(self.password)
        if self.tls:
            files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
            found |= {f"ssl.{name}.location": path for name, path in files.items() if path}
            if self.key_password:
                found["ssl.key.password"] = look_up(self.key_password)
            found["ssl.endpoint.identification.algorithm"] = "https" if self.check_host else "none"
        return found

    def spark(self) -> dict[str, str]:
        """The options of Spark's Kafka source, without any secret in them.

        Kafka's Java client looks them up in the environment, which `for_java` fills.
        """
        if self.protocol == "PLAINTEXT":
            return {}
        found = {
            "security.protocol": self.protocol,
            "config.providers": "env,dir",
            "config.providers.env.class": _ENV,
            "config.providers.dir.class": _FILES,
        }
        if self.sasl:
            found["sasl.mechanism"] = self.mechanism
            found["sasl.jaas.config"] = (
                f'{_LOGIN[self.mechanism]} required username="{_quoted(self.username)}" '
                f'password="${{env:{_PASSWORD}}}";'
            )
        if self.tls:
            if self.ca:
                found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
            if self.certificate:
                found["ssl.keystore.type"] = "PEM"
                found["ssl.keystore.certificate.chain"] = _content(self.certificate)
                found["ssl.keystore.key"] = f"${{env:{_KEY}}}"
            found["ssl.endpoint.identification.algorithm"] = "https" if self.check_host else ""
        return {f"kafka.{name}": value for name, value in found.items()}

    def for_java(self) -> None:
        """Put the secrets into this process's environment, where its Java clients look for them."""
        if self.sasl:
            os.environ[_PASSWORD] = _quoted(look_up(self.password))
        if self.key:
            os.environ[_KEY] = self._plain_key()

    @property
    def converts_key(self) -> bool:
        """Whether Kafka's Java client cannot read the key as it is: it knows PKCS#8, and no PBES2."""
        return bool(self.key) and _PLAIN_KEY not in self.key_bytes()

    def key_bytes(self) -> bytes:
        """What the file of the key has."""
        try:
            return Path(self.key).read_bytes()
        except OSError as error:
            raise UsageError(f"the key {self.key} could not be read: {error.strerror}", _LOOK) from error

    def _plain_key(self) -> str:
        """The key as Kafka's Java client reads it; on no disk, in no command line, redacted from now on."""
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
            raise UsageError(f"{problem}: there is no openssl", "install openssl") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{problem}: {type(error).__name__} of openssl", _LOOK) from error
        if done.returncode != 0:
            raise UsageError(f"{problem}: {done.stderr.strip()[-200:]}", _LOOK)
        return done.stdout

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """Speak TLS over this connection, where the listener does."""
        if not self.tls:
            return plain
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            raise UsageError(f"{self.ca} cannot be used: {error}", "look at security.ca: PEM") from error
        context.check_hostname = self.check_host
        if self.certificate:
            password = look_up(self.key_password) if self.key_password else None
            try:
                context.load_cert_chain(self.certificate, self.key or None, password)
            except OSError as error:  # of OpenSSL, or of a file that is not to be read
                raise UsageError(
                    f"{self.certificate} and its key cannot be used: {error}",
                    "look at certificate, key and key_password: PEM, and the one belongs to the other",
                ) from error
        return context.wrap_socket(plain, server_hostname=host)

    def log_in(self, connection: RawConnection) -> None:
        """Log in over this connection, where the listener asks for it."""
        if not self.sasl:
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
        _refused_if(answer.error_code, f"{self.mechanism} of {self.username}")
        while not login.is_done():
            answer = connection.call(SaslAuthenticateRequest(auth_bytes=login.auth_bytes(), version=1))
            _refused_if(answer.error_code, f"login of {self.username}")
            login.receive(answer.auth_bytes)


PLAINTEXT: Final = Security()


def _refused_if(code: int, what: str) -> None:
    from harness.kafka.errors import KafkaAnswerError

    if code:
        raise KafkaAnswerError(what, code)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _content(path: str) -> str:
    """The content of a file, in the words of Kafka's configuration providers."""
    place = Path(path).resolve()
    return f"${{dir:{place.parent}:{place.name}}}"
