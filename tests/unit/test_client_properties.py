"""client.properties files of Kafka: what the tools read from them, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.base.secrets import look_up, redact
from harness.cli.options import Connection
from harness.kafka.client_properties import bootstrap_in, read_security
from harness.kafka.security import PLAINTEXT

SCRAM = r"""
# a comment
bootstrap.servers=kafka:9093,other:9093
security.protocol = SASL_SSL
sasl.mechanism: SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="chaos" \
    password="correct horse; battery";
ssl.truststore.type=PEM
ssl.truststore.location=ca.pem
"""
LIBRDKAFKA = """
security.protocol=sasl_plaintext
sasl.mechanisms=PLAIN
sasl.username=chaos
sasl.password=battery-staple
acks=all
"""
CERTIFICATE = """
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location=ca.pem
ssl.keystore.type=PEM
ssl.keystore.location=me.pem
ssl.key.password=battery-staple
ssl.endpoint.identification.algorithm=
"""

OAUTH = """
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.oauthbearer.token.endpoint.url=https://login.example/token
sasl.oauthbearer.client.credentials.client.id=chaos
sasl.oauthbearer.client.credentials.client.secret=battery-staple
sasl.oauthbearer.scope=kafka
"""


def written(folder: Path, text: str) -> Path:
    for name in ("ca.pem", "me.pem"):
        (folder / name).write_text("-")
    file = folder / "client.properties"
    file.write_text(text)
    return file


def test_a_file_of_kafkas_own_tools_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, SCRAM)
    security = read_security(file)
    assert (security.protocol, security.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert security.username == "chaos"
    assert look_up(security.password) == "correct horse; battery"
    assert security.ca == str(tmp_path / "ca.pem")
    assert security.check_host
    assert bootstrap_in(file) == "kafka:9093,other:9093"


def test_a_file_of_librdkafka_is_read_and_its_password_is_redacted(tmp_path: Path) -> None:
    security = read_security(written(tmp_path, LIBRDKAFKA))
    assert (security.protocol, security.mechanism) == ("SASL_PLAINTEXT", "PLAIN")
    assert look_up(security.password) == "battery-staple"
    assert "battery-staple" not in redact("the password is battery-staple")


@pytest.mark.parametrize("form", ["keys of Kafka", "keys of librdkafka", "JAAS"])
def test_the_client_of_a_token_endpoint_is_read(tmp_path: Path, form: str) -> None:
    text = OAUTH
    if form == "keys of librdkafka":
        text = text.replace("client.credentials.", "") + "sasl.oauthbearer.method=oidc\n"
    elif form == "JAAS":
        kept = [
            line for line in text.splitlines() if "client.credentials" not in line and "scope" not in line
        ]
        jaas = 'clientId="chaos" clientSecret="battery-staple" scope="kafka";'
        text = "\n".join([*kept, f"sasl.jaas.config=x.OAuthBearerLoginModule required {jaas}"])
    security = read_security(written(tmp_path, text))
    assert (security.oauth, security.username, security.scope) == (True, "chaos", "kafka")
    assert security.token_url == "https://login.example/token"
    assert security.client()["sasl.oauthbearer.client.secret"] == "battery-staple"
    spark = security.spark()
    assert spark["kafka.sasl.jaas.config"].endswith(
        'required clientId="chaos" clientSecret="${env:EOS_SASL_PASSWORD}" scope="kafka";'
    )
    assert "battery-staple" not in str(spark)


def test_a_certificate_with_its_key_in_one_file_is_read(tmp_path: Path) -> None:
    security = read_security(written(tmp_path, CERTIFICATE))
    assert security.certificate == security.key == str(tmp_path / "me.pem")
    assert look_up(security.key_password) == "battery-staple"
    assert not security.check_host


def test_a_pem_file_needs_no_type(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("\n-----BEGIN CERTIFICATE-----\n")
    text = "security.protocol=SSL\nssl.truststore.location=store\n"
    assert read_security(written(tmp_path, text)).ca == str(tmp_path / "store")


def test_a_password_with_quotes_and_backslashes_is_read(tmp_path: Path) -> None:
    # The file escapes the text of the JAAS configuration, which escapes the password a second time.
    text = SCRAM.replace("correct horse; battery", r"a\\\"b\\\\c")
    assert look_up(read_security(written(tmp_path, text)).password) == 'a"b\\c'


def test_a_file_without_security_settings_is_plaintext(tmp_path: Path) -> None:
    assert read_security(written(tmp_path, "client.id=me\n")) == PLAINTEXT


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("security.protocol=TLS", "security.protocol: 'TLS' is not supported", "SASL_SSL"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER",
            "sasl.oauthbearer.client.credentials.client.id: is missing",
            "only the client credentials of a token endpoint",
        ),
        (
            OAUTH.replace("https://", ""),
            "sasl.oauthbearer.token.endpoint.url: is not an address",
            "such as https://",
        ),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "'GSSAPI' is not supported", "PLAIN"),
        ("security.protocol=SASL_SSL", "has no username and password", "required username="),
        (
            "security.protocol=SASL_SSL\nsasl.jaas.config=x required username=me;",
            "has no username and pa",
            "",
        ),
        (
            "security.protocol=SSL\nssl.truststore.location=ca.jks",
            "JKS is not supported, only PEM",
            "keytool",
        ),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=none.pem",
            "there is no file",
            "correct the path",
        ),
        (
            "security.protocol=SSL\nssl.truststore.location=ca.jks\nssl.truststore.password=x",
            "ssl.truststore.location: JKS is not supported, only PEM",
            "write ssl.truststore.location=store.pem and ssl.truststore.type=PEM",
        ),
        (
            "security.protocol=SSL\nssl.truststore.location=ca.pem\nssl.truststore.password=x",
            "ssl.truststore.password: is for a JKS or PKCS12 store",
            "remove the line",
        ),
        ("security.protocol=SSL\nssl.truststore.location=none.pem", "there is no file", "correct the path"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka",
            "sasl.mechanism: 'GSSAPI' is not supported",
            "no client of the harness logs in with Kerberos",
        ),
        ("sasl.user=me", "sasl.user: is not supported", "did you mean sasl.username?"),
        ("= x", "client.properties:1: not a property", "key=value"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path, text: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        read_security(written(tmp_path, text))
    assert problem in error.value.message
    assert hint in error.value.hint
    assert "password=" not in error.value.message


def test_a_connection_takes_its_addresses_from_the_option_or_from_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, SCRAM)
    assert Connection(None, None, file, None).settings()[0] == "kafka:9093,other:9093"
    assert Connection("mine:1", None, file, None).settings()[0] == "mine:1"
    assert Connection(None, "mine:1", None, None).settings() == ("mine:1", PLAINTEXT)
    with pytest.raises(UsageError, match="--bootstrap is missing"):
        Connection(None, None, None, None).settings()
    with pytest.raises(UsageError, match="exclude each other"):
        Connection(None, None, file, tmp_path / "cluster.toml").settings()
    with pytest.raises(UsageError, match="cannot be read"):
        Connection(None, None, tmp_path / "none.properties", None).settings()
