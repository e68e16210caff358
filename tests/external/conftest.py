"""Fixtures: a stand-in external cluster, and `eos run … --cluster` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.base import processes
from harness.base.ports import free_ports
from harness.base.waits import wait_until
from harness.cluster.external.cluster_file_loader import load_cluster_file
from harness.cluster.toxiproxy_client import Toxiproxy
from harness.faults.catalogue import external_faults
from harness.provision.toxiproxy_binary import ensure_toxiproxy
from harness.run.external.dry_run_report import acls
from tests.external.secured_cluster import (
    HOST,
    KEY_PASSWORD,
    PASSWORD,
    PREFIX,
    SUBJECT,
    USER,
    VERBS,
    StandIn,
    stand_in,
)
from tests.external.token_endpoint import TokenEndpoint

EOS = Path(sys.executable).with_name("eos")
SCENARIO = """[scenario]
name = "short"
shows = "Clients, for a few seconds."
[plan]
steady = "2s"
duration = "{duration}"
gap = ["500ms", "1s"]
[limits]
recovery = "40s"
[verify]
witnesses = {witnesses}
[[workload]]
kind = "idempotent"
topic = "clicks"
rate = 200
"""
ALL_KINDS = """[[workload]]
kind = "transactional"
topic = "orders"
rate = 100
[[workload]]
kind = "pipeline"
source = "orders"
topic = "invoices"
group = "billing"
"""
_SECRETS = {"CHAOS_PASSWORD": PASSWORD, "CHAOS_KEY_PASSWORD": KEY_PASSWORD}

MECHANISMS = {"plain": "PLAIN", "scram": "SCRAM-SHA-512", "token": "OAUTHBEARER"}
"""Mechanism of each login with a password."""


class User:
    """A user of the stand-in cluster, with a cluster file, a folder, and passwords in the environment."""

    def __init__(self, cluster: StandIn, folder: Path, login: str = "plain") -> None:
        self.cluster = cluster
        self.folder = folder
        self.login = login
        self.state = folder / "state"
        self.token_url = ""
        self.abort_file = folder / "stop"
        self.output: list[str] = []

    def file(self, *, more: str = "", **changes: str) -> Path:
        """Write a cluster file, with the given changes of its keys, and return its path.

        The argument `limits__deadline='"5s"'` sets the key limits.deadline to "5s". An empty string removes
        a key. `more` is text to append.
        """
        keys: dict[str, dict[str, str]] = {
            "cluster": {
                "id": f'"{self.cluster.cluster_id}"',
                "bootstrap": json.dumps(self.cluster.bootstrap(self.listener("straight")).split(",")),
                "prefix": f'"{PREFIX}"',
            },
            "security": self.security(),
            "faults": {"allowed": '["crash_client", "zombie"]'},
            "limits": {
                "deadline": '"5m"',
                "bytes_per_second": '"1MB/s"',
                "storage": '"100MB"',
                "abort_file": f'"{self.abort_file}"',
            },
        }
        for key, value in changes.items():
            table, name = key.split("__")
            keys.setdefault(table, {})[name] = value
        lines = []
        for table, entries in keys.items():
            lines += [f"[{table}]", *(f"{name} = {value}" for name, value in entries.items() if value)]
        path = self.folder / "cluster.toml"
        path.write_text("\n".join([*lines, more]) + "\n")
        return path

    def listener(self, name: str) -> str:
        """Return the name of the direct or the proxied listener for this user's login method."""
        return f"mutual_{name}" if self.login == "certificate" else name

    def security(self) -> dict[str, str]:
        """Return the [security] keys for this user's login: a password or a certificate."""
        tls = {"ca": f'"{self.cluster.ca}"'}
        if self.login == "certificate":
            mine = {
                name: f'"{self.cluster.keys}/chaos.{ending}"'
                for name, ending in (("certificate", "pem"), ("key", "key"))
            }
            return {
                "protocol": '"SSL"',
                **tls,
                **mine,
                "key_password": '"env:CHAOS_KEY_PASSWORD"',
                "principal": f'"User:{SUBJECT}"',
            }
        token = {"token_url": f'"{self.token_url}"'} if self.login == "token" else {}
        return {
            **token,
            "protocol": '"SASL_SSL"',
            "mechanism": f'"{MECHANISMS[self.login]}"',
            "username": f'"{USER}"',
            "password": '"env:CHAOS_PASSWORD"',
            **tls,
        }

    def properties(self, folder: Path) -> Path:
        """Write the same login as a client.properties file, as Kafka's own tools take it; return its path.

        The file contains passwords, so it belongs into a folder of its own.
        """
        ca = ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.cluster.ca}"]
        bootstrap = f"bootstrap.servers={self.cluster.bootstrap(self.listener('straight'))}"
        if self.login == "certificate":
            lines = [
                "security.protocol=SSL",
                f"ssl.certificate.location={self.cluster.keys}/chaos.pem",
                f"ssl.key.location={self.cluster.keys}/chaos.key",
                f"ssl.key.password={escaped(KEY_PASSWORD)}",
            ]
        elif self.login == "token":
            client = "sasl.oauthbearer.client.credentials.client"
            lines = [
                "security.protocol=SASL_SSL",
                "sasl.mechanism=OAUTHBEARER",
                f"sasl.oauthbearer.token.endpoint.url={self.token_url}",
                f"{client}.id={USER}",
                f"{client}.secret={escaped(PASSWORD)}",
            ]
        else:
            jaas = f'x required username="{USER}" password="{escaped(PASSWORD)}";'
            lines = [
                "security.protocol=SASL_SSL",
                f"sasl.mechanism={MECHANISMS[self.login]}",
                f"sasl.jaas.config={escaped(jaas)}",
            ]
        path = folder / "client.properties"
        path.write_text("\n".join([bootstrap, *lines, *ca]) + "\n")
        return path

    def token_endpoint(self) -> TokenEndpoint:
        """Return an endpoint that issues tokens for this user."""
        return TokenEndpoint(self.cluster.keys, USER, PASSWORD)

    def proxies(self, *, host: str = HOST) -> str:
        """Return the lines of a cluster file that make the harness start a Toxiproxy."""
        listen, proxied = self.listener("listen"), self.listener("proxied")
        ways = [
            f'[[proxy]]\nbroker = {i}\nlisten = "{host}:{p[listen]}"\nupstream = "{HOST}:{p[proxied]}"'
            for i, p in self.cluster.ports.items()
        ]
        return "\n".join(['[links]\ntoxiproxy = "start"', *ways])

    @contextmanager
    def own_toxiproxy(self) -> Iterator[str]:
        """Start a Toxiproxy as a user would, outside the harness; yield the cluster file's lines for it."""
        # The listen ports of the proxies are free until Toxiproxy starts.
        (api,) = free_ports(1, avoid={ports["listen"] for ports in self.cluster.ports.values()})
        served = [
            {
                "name": f"kafka-{i}",
                "listen": f"{HOST}:{p['listen']}",
                "upstream": f"{HOST}:{p['proxied']}",
                "enabled": True,
            }
            for i, p in self.cluster.ports.items()
        ]
        config = self.folder / "their-proxies.json"
        config.write_text(json.dumps(served))
        server = ensure_toxiproxy(lambda _: None).server
        command = [server, "-host", HOST, "-port", str(api), "-config", config]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                wait_until(lambda: len(Toxiproxy(HOST, api).proxies()) == 3, 15, "their Toxiproxy")
                ways = [
                    f'[[proxy]]\nbroker = {i}\nlisten = "{HOST}:{p["listen"]}"\nname = "kafka-{i}"'
                    for i, p in self.cluster.ports.items()
                ]
                yield "\n".join([f'[links]\ntoxiproxy = "{HOST}:{api}"', *ways])
            finally:
                process.kill()

    def nodes(self) -> str:
        """Return a cluster file's [nodes] lines: commands that kill, stop, start, freeze and resume."""
        commands = [
            f'{verb} = "sh {self.cluster.folder}/node-{{id}}/{verb}.sh"' for verb in ("start", *VERBS)
        ]
        return "\n".join(["[nodes]", *commands])

    def logs(self) -> str:
        """Return a cluster file's lines that permit reading logs, with the command for a node's log."""
        return "\n".join(
            [
                "[evidence]",
                'logs = ["__transaction_state", "__consumer_offsets", "nodes"]',
                "[nodes]",
                f'log = "tail -n 50 {self.cluster.folder}/node-{{id}}/log"',
            ]
        )

    def scenario(
        self, *faults: str, duration: str = "4s", witnesses: str = '["reader"]', all_kinds: bool = False
    ) -> Path:
        """Write a scenario: an idempotent producer and, with `all_kinds`, also the other kinds of client."""
        path = self.folder / "short.toml"
        first = SCENARIO.format(duration=duration, witnesses=witnesses)
        path.write_text("\n".join([first + (ALL_KINDS if all_kinds else ""), *faults]))
        return path

    def command(self, *arguments: str | Path) -> list[str]:
        return [str(EOS), *map(str, arguments), "--state", str(self.state)]

    def run_command(self, scenario: Path, file: Path, *more: str) -> list[str]:
        typed = () if "--dry-run" in more else ("--i-understand", self.cluster.cluster_id)
        return self.command(
            "run", scenario, "--cluster", file, *typed, "--seed", "1", "--runs", self.folder / "runs", *more
        )

    def do(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
            env=self.environment(environment),
        )
        self.output.append(done.stdout + done.stderr)
        return done

    def environment(self, more: Mapping[str, str] = {}) -> dict[str, str]:  # the default is never modified
        return dict(os.environ) | _SECRETS | dict(more)

    def begin(self, command: list[str]) -> subprocess.Popen[str]:
        """Start a command in the background, with its output in a file."""
        with (self.folder / "output").open("a") as out:
            return subprocess.Popen(
                command, stdout=out, stderr=out, text=True, env=self.environment(), start_new_session=True
            )

    def background_output(self) -> str:
        """Return the output of the background run so far."""
        path = self.folder / "output"
        return path.read_text() if path.exists() else ""

    def wait_for_output(self, text: str, limit: float = 180) -> None:
        wait_until(
            lambda: text in self.background_output(),
            limit,
            f"the run to print {text!r}",
            hint=self.background_output()[-1500:],
        )

    def latest(self) -> Path:
        return (self.folder / "runs" / "short" / "latest").resolve()

    def audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.latest() / "audit.jsonl").read_text().splitlines()]

    def left(self) -> list[str]:
        """Return the command lines of this user's processes that still run on this host."""
        return [one.command[:120] for one in processes.find(f"{self.state}/")]

    def clean(self) -> None:
        processes.end_all(f"{self.state}/")
        if topics := self.cluster.ours():
            self.cluster.admin.delete_topics(topics)
            wait_until(lambda: not self.cluster.ours(), 30, "the topics of a failed test to be gone")
        self.cluster.mend()


@pytest.fixture(scope="package")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """Yield the stand-in cluster. Its users have only the rights that a dry run lists as required."""
    with stand_in(tmp_path_factory.mktemp("standin")) as cluster:
        # PLAIN and SCRAM logins have the same user name, so the rights of "plain" also cover SCRAM.
        for login in ("plain", "certificate"):
            user = User(cluster, tmp_path_factory.mktemp("rights"), login)
            # Only the user with a certificate may read the cluster's logs.
            logs = user.logs() if login == "certificate" else ""
            cluster.grant(acls(load_cluster_file(user.file(more=logs), external_faults())))
        yield cluster


@pytest.fixture
def user(standin: StandIn, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[User]:
    """Yield a user with the test's login method; the default is a password.

    At the end, check that no foreign resource changed and no secret leaked.
    """
    before = standin.foreign()
    found = User(standin, tmp_path, getattr(request, "param", "plain"))
    with found.token_endpoint().serve() as found.token_url:
        yield found
    found.clean()
    assert standin.foreign() == before
    assert secrets_in(tmp_path, [*found.output, found.background_output()]) == []


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def secrets_in(folder: Path, outputs: list[str]) -> list[str]:
    """Return the files and outputs that contain a password, as plain text or in JSON."""
    forms = {KEY_PASSWORD, PASSWORD, PASSWORD.replace("\\", "\\\\").replace('"', '\\"')}
    files = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files |= {f"output {i}": text.encode() for i, text in enumerate(outputs)}
    return [name for name, data in files.items() if any(form.encode() in data for form in forms)]


def end(process: subprocess.Popen[str]) -> int:
    """Wait for a run to end by itself and return its exit code; kill it if it does not end."""
    try:
        return process.wait(240)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
