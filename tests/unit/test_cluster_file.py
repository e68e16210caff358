"""The cluster file is read strictly: every mistake is reported with line, key and hint."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.base.secrets import REDACTED, redact
from harness.cluster.external.cluster_file import ClusterFile
from harness.cluster.external.cluster_file_loader import load_cluster_file
from harness.faults.catalogue import external_faults
from harness.kafka.security import Security
from harness.run.external.dry_run_report import acls

WHOLE = """[cluster]
id = "4L6g3nShT-eMCtK--X86sw"
bootstrap = ["broker-1.example:9093", "broker-2.example:9093"]
prefix = "eos-chaos-"

[security]
protocol = "SASL_SSL"
mechanism = "SCRAM-SHA-512"
username = "chaos"
password = "env:CHAOS_PASSWORD"
ca = "ca.pem"

[topics]
replication = 3
min_insync = 2

[faults]
allowed = ["jitter", "kill", "crash_client"]
most_targets = 1

[limits]
deadline = "15m"
bytes_per_second = "1MB/s"
storage = "2GB"
abort_file = "stop"
foreign_under_replicated = 40

[links]
toxiproxy = "start"

[[proxy]]
broker = 1
listen = "127.0.0.1:19092"
upstream = "broker-1.example:9094"

[nodes]
hosts = { 1 = "broker-1.example" }
kill = "ssh {host} sudo systemctl kill -s KILL kafka"
start = "ssh {host} sudo systemctl start kafka"
log = "ssh {host} tail -n 2000 kafka.log"

[evidence]
logs = ["__transaction_state", "nodes"]
"""


def loaded(folder: Path, text: str) -> ClusterFile:
    (folder / "ca.pem").write_text("a certificate")
    path = folder / "live.toml"
    path.write_text(text)
    return load_cluster_file(path, external_faults())


def test_a_complete_file_is_read(tmp_path: Path) -> None:
    found = loaded(tmp_path, WHOLE)
    assert found.limits.deadline == 900
    assert found.limits.storage == 2_000_000_000
    # A client runs in its own folder, so the loader makes paths absolute. It resolves them relative to the
    # cluster file.
    assert found.security.ca == str(tmp_path / "ca.pem")
    assert found.limits.abort_file == str(tmp_path / "stop")
    assert found.proxies[1].upstream == "broker-1.example:9094"


MISTAKES = {
    "not-toml": ('id = "4L6g', "id = 4L6g", "not TOML", "put texts and durations in quotes"),
    "unknown-table": ("[topics]", "[topic]", "topic: there is no such key", "did you mean topics?"),
    "unknown-key": ("min_insync =", "min_isr =", ":15: topics.min_isr: there is no such key", "min_insync"),
    "no-id": ('id = "4L6g3nShT-eMCtK--X86sw"\n', "", ":1: cluster: id is missing", "add id = ..."),
    "empty-id": ("4L6g3nShT-eMCtK--X86sw", " ", ":2: cluster.id: it is empty", "kafka-cluster.sh"),
    "no-prefix": ('prefix = "eos-chaos-"\n', "", "cluster: prefix is missing", "add prefix = ..."),
    "short-prefix": ("eos-chaos-", "eos", ":4: cluster.prefix: 'eos' is not allowed", "4 or more"),
    "kafkas-prefix": ("eos-chaos-", "__consumer", "cluster.prefix: '__consumer' is not allowed", "4 or more"),
    "no-servers": ('"broker-1.example:9093", "broker-2.example:9093"', "", "cluster.bootstrap", "host:9092"),
    "no-port": ("broker-2.example:9093", "broker-2", "cluster.bootstrap: 'broker-2' is not", "broker-1.ex"),
    "protocol": ("SASL_SSL", "TLS", ":7: security.protocol: 'TLS' is not allowed", "SASL_PLAINTEXT"),
    "mechanism": ("SCRAM-SHA-512", "MD5", "security.mechanism: 'MD5' is not", "allowed are PLAIN"),
    "no-token-url": (
        '"SCRAM-SHA-512"',
        '"OAUTHBEARER"',
        "security.token_url: '' is not",
        "OAUTHBEARER needs",
    ),
    "token-unused": (
        "username =",
        'scope = "x"\nusername =',
        "security.scope: only OAUTHBEARER",
        "remove it",
    ),
    "no-user": ('username = "chaos"\n', "", "security.username: it is missing", "have a username"),
    "user-unused": ('"SASL_SSL"', '"SSL"', ":9: security.username: it is not used", "SASL_PLAINTEXT"),
    "tls-unused": ('"SASL_SSL"', '"SASL_PLAINTEXT"', "security.ca: SASL_PLAINTEXT has no TLS", "remove it"),
    "no-ca": ('"ca.pem"', '"ca2.pem"', "security.ca: there is no file", "a PEM file"),
    "half-key": (
        'ca = "ca.pem"',
        'ca = "ca.pem"\ncertificate = "ca.pem"',
        "certificate and key",
        "name both",
    ),
    "secret": (
        '"env:CHAOS_PASSWORD"',
        '"s3cret!"',
        ":10: security.password: a secret is in the file",
        "env:NAME",
    ),
    "fault": ('"jitter",', '"jiter",', ":18: faults.allowed: 'jiter'", "did you mean jitter?"),
    "cruel-fault": ('"jitter",', '"feature_level",', "'feature_level' is not allowed on", "allowed are"),
    "no-targets": ("most_targets = 1", "most_targets = 0", ":19: faults.most_targets: 0", "1 or more nodes"),
    "insync": ("min_insync = 2", "min_insync = 4", "topics.min_insync: 4", "from 1 to replication"),
    "no-deadline": ('deadline = "15m"\n', "", "limits: deadline is missing", "add deadline = ..."),
    "unit": ('"15m"', '"15"', ":22: limits.deadline: '15' is not \"500ms\"", "every key"),
    "rate-unit": ('"1MB/s"', '"1MB"', "limits.bytes_per_second: '1MB' is not", "every key"),
    "number": ('"2GB"', "2000", "limits.storage: 2000 is not", "every key"),
    "type": ("= 40", '= "40"', "limits.foreign_under_replicated: must be a whole number", "every key"),
    "negative": ("= 40", "= -1", "limits.foreign_under_replicated: -1", "0 or more"),
    "links-alone": ('[links]\ntoxiproxy = "start"\n', "", "[links] and [[proxy]] need each other", "proxy"),
    "toxiproxy": ('"start"', '"yes"', 'links.toxiproxy: \'yes\' is not "host:port" or "start"', "such as"),
    "no-upstream": ('upstream = "broker-1.example:9094"', 'name = "a"', "needs upstream, not name", "target"),
    "proxy-key": ("listen =", "listens =", "proxy[0].listens: there is no such key", "did you mean listen?"),
    "both-reaches": ("[nodes]\n", '[nodes]\ndocker_label = "a={id}"\n', "set docker_label", "kill, stop"),
    "placeholder": ("{host} sudo systemctl start", "{node} start", "nodes.start: {node} is not", "{host} or"),
    "quotes": ("start kafka", "start 'kafka", "No closing quotation", "close quotes"),
    "no-undo": ('start = "ssh {host} sudo systemctl start kafka"', "", "there is no start", "add start"),
    "host-key": ("{ 1 =", "{ one =", "nodes.hosts: 'one' is not a broker id", "hosts = { 1"),
    "log": (
        '["__transaction_state"',
        '["__transactions"',
        "'__transactions' is not a readable log",
        "did you mean __t",
    ),
    "no-log": (
        'log = "ssh {host} tail -n 2000 kafka.log"\n',
        "",
        "no command to read a node's log",
        "or with log",
    ),
    "unreachable": ('"kill", "cr', '"pause", "cr', "no command to pause a node", "resume"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_with_its_place_and_a_hint(tmp_path: Path, mistake: str) -> None:
    right, wrong, problem, hint = MISTAKES[mistake]
    assert WHOLE.count(right) == 1 or right in ('"SASL_SSL"', '"start"', "SASL_SSL")
    with pytest.raises(UsageError) as found:
        loaded(tmp_path, WHOLE.replace(right, wrong))
    assert problem in found.value.message
    assert hint in found.value.hint
    assert "live.toml" in found.value.message
    assert "s3cret!" not in str(found.value)


def test_two_proxies_for_one_broker_are_an_error(tmp_path: Path) -> None:
    twice = WHOLE[WHOLE.index("[[proxy]]") : WHOLE.index("[nodes]")]
    with pytest.raises(UsageError, match="two entries for one broker"):
        loaded(tmp_path, WHOLE.replace("[nodes]", f"{twice}\n[nodes]"))
    without = WHOLE.replace(twice, "").replace('[links]\ntoxiproxy = "start"\n', "")
    with pytest.raises(UsageError, match="jitter needs a Toxiproxy"):
        loaded(tmp_path, without)


def test_an_external_cluster_may_allow_the_faults_that_declare_it() -> None:
    links, nodes = {"jitter", "stall", "throttle", "sever", "down"}, {"kill", "stop", "pause"}
    assert set(external_faults()) == links | nodes | {"crash_client", "zombie"}


def test_the_principal_of_a_certificate_has_the_brokers_form(tmp_path: Path) -> None:
    with_key = WHOLE.replace('"SASL_SSL"', '"SSL"').replace('mechanism = "SCRAM-SHA-512"\n', "")
    for line in ('username = "chaos"\n', 'password = "env:CHAOS_PASSWORD"\n'):
        with_key = with_key.replace(line, "")
    (tmp_path / "me.key").write_text("-----BEGIN PRIVATE ")
    with_key = with_key.replace('ca = "ca.pem"', 'ca = "ca.pem"\ncertificate = "ca.pem"\nkey = "me.key"')
    assert loaded(tmp_path, with_key).security.who == "User:SUBJECT-OF-THE-CERTIFICATE"
    (tmp_path / "me.key").write_text("-----BEGIN ENCRYPTED ")
    with pytest.raises(UsageError, match="the key is encrypted, and key_password is missing"):
        loaded(tmp_path, with_key)  # without this error, OpenSSL would ask for the password at the terminal
    (tmp_path / "me.key").write_text("-----BEGIN PRIVATE ")
    named = with_key.replace('key = "me.key"', 'key = "me.key"\nprincipal = "User:CN=chaos"')
    assert "--allow-principal User:CN=chaos " in acls(loaded(tmp_path, named))[0]


def test_the_required_rights_are_the_prefix_and_describe(tmp_path: Path) -> None:
    rights = acls(loaded(tmp_path, WHOLE))
    assert all("--allow-principal User:chaos " in line for line in rights)
    for line in rights:
        if line.endswith("--topic __transaction_state"):
            assert "--operation Describe --operation Read --topic" in line
        elif "'*'" in line:
            assert line.count("--operation") == 1
            assert "--operation Describe" in line
        else:
            assert "--resource-pattern-type prefixed" in line
            assert line.endswith(" eos-chaos-")


def test_plaintext_needs_no_security_keys() -> None:
    assert Security().client() == {}
    assert Security().spark() == {}


def test_names_are_quoted_for_the_shell(tmp_path: Path) -> None:
    named = WHOLE.replace('username = "chaos"', 'username = "o\'neil"')
    command = acls(loaded(tmp_path, named))[0]
    assert shlex.split(command)[3] == "User:o'neil"


def test_a_secret_file_is_resolved_beside_the_cluster_file(tmp_path: Path) -> None:
    found = loaded(tmp_path, WHOLE.replace("env:CHAOS_PASSWORD", "file:secrets/chaos"))
    assert found.security.password == f"file:{tmp_path}/secrets/chaos"
    there = loaded(tmp_path, WHOLE.replace("env:CHAOS_PASSWORD", "file:/run/secrets/chaos"))
    assert there.security.password == "file:/run/secrets/chaos"


def test_a_file_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "live.toml"
    path.write_bytes(WHOLE.replace("chaos", "cha\xf6s").encode("latin-1"))
    with pytest.raises(UsageError, match=r"live\.toml is not text in UTF-8"):
        load_cluster_file(path, external_faults())


def test_an_unreadable_or_unconvertible_key_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    security = Security(protocol="SSL", certificate="/me.pem", key=str(tmp_path))
    with pytest.raises(UsageError, match=f"the key {tmp_path} could not be read: Is a directory"):
        security.for_java()
    key = tmp_path / "me.key"
    key.write_text("-----BEGIN ENCRYPTED ")
    monkeypatch.setenv("KP", "key-pa55word")
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    security = Security(protocol="SSL", certificate="/me.pem", key=str(key), key_password="env:KP")
    for error, message in (
        (FileNotFoundError("openssl"), "there is no openssl program"),
        (subprocess.TimeoutExpired("openssl", 30), "openssl failed with TimeoutExpired"),
    ):

        def fail(*_: object, error: Exception = error, **options: object) -> None:
            assert "key-pa55word" not in str(options.get("env"))
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("harness.kafka.security.subprocess.run", fail)
            with pytest.raises(UsageError, match=message):
                security.for_java()


def test_an_unencrypted_key_is_redacted_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOS_TLS_KEY", "")
    key = tmp_path / "me.key"
    key.write_text("-----BEGIN PRIVATE of a kind that no pattern matches\n")
    Security(protocol="SSL", certificate="/me.pem", key=str(key)).for_java()
    assert redact(f"printed {key.read_text()}") == f"printed {REDACTED}\n"


def test_java_gets_a_key_in_a_format_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's Java client reads only PKCS#8 keys without PBES2. An operator's key often has another form."""
    key, secret = tmp_path / "me.key", "key-pa55word"
    make = (
        f"openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes-256-cbc -out {key} -pass env:KP"
    )
    subprocess.run(shlex.split(make), check=True, capture_output=True, env={**os.environ, "KP": secret})
    monkeypatch.setenv("KP", secret)
    monkeypatch.delenv("EOS_TLS_KEY", raising=False)
    security = Security(protocol="SSL", certificate=str(key), key=str(key), key_password="env:KP")
    assert "ENCRYPTED" in key.read_text()
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    security.for_java()
    plain = os.environ["EOS_TLS_KEY"]
    assert plain.startswith("-----BEGIN PRIVATE ")
    assert redact(plain).strip() == REDACTED
    key.write_text(plain)
    assert not security.converts_key
    monkeypatch.setenv("KP", "another")
    key.write_text("-----BEGIN ENCRYPTED ")
    with pytest.raises(UsageError, match="could not be read"):
        security.for_java()


def test_tls_with_a_client_certificate() -> None:
    security = Security(protocol="SSL", ca="/ca.pem", certificate="/me.pem", key="/keys/me.key")
    assert security.client() == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/keys/me.key",
        "ssl.endpoint.identification.algorithm": "https",
    }
    spark = security.spark()
    assert spark["kafka.ssl.truststore.location"] == "/ca.pem"
    assert spark["kafka.ssl.keystore.certificate.chain"] == "${dir:/:me.pem}"
    assert spark["kafka.ssl.keystore.key"] == "${env:EOS_TLS_KEY}"


def test_only_a_command_that_reads_needs_no_limits(tmp_path: Path) -> None:
    path = tmp_path / "read.toml"
    text = '[cluster]\nid = "x"\nbootstrap = ["broker:9092"]\nprefix = "payments-"\n'
    path.write_text(text)
    assert load_cluster_file(path, external_faults(), only_reads=True).cluster.prefix == "payments-"
    with pytest.raises(UsageError, match="limits: limits is missing") as found:
        load_cluster_file(path, external_faults())
    needed = "deadline, bytes_per_second, storage, abort_file"
    assert found.value.hint == f"add the table [limits] with {needed}"
    path.write_text(f'{text}[limits]\ndeadline = "soon"\n')
    with pytest.raises(UsageError, match="limits"):
        load_cluster_file(path, external_faults(), only_reads=True)
