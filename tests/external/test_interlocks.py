"""Interlocks that refuse a run on an external cluster, or stop it: exit 5, with the reason."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from harness.base.errors import ExitCode
from harness.cluster.state_directory import State
from harness.faults.intents import unhealed
from tests.external.conftest import User, end
from tests.external.secured_cluster import HOST, PASSWORD, PREFIX

pytestmark = pytest.mark.cluster
QUIET = '[[fault]]\nfault = "crash_client"\ntarget = "client(*)"\nat = "40s"\n'
DOWN = '[[fault]]\nfault = "down"\ntarget = "one"\nthroughout = true\n'
LONG = "60s"


def dry_run(user: User, file: Path, scenario: Path | None = None) -> list[str]:
    """Return the reasons for which a dry run reports that the run would be refused."""
    done = user.do(user.command("run", scenario or user.scenario(), "--cluster", file, "--dry-run"))
    reasons = [line for line in done.stdout.splitlines() if line.startswith("refused: ")]
    assert done.returncode == (ExitCode.REFUSED if reasons else ExitCode.VALID), done.stderr
    return reasons


def refused(user: User, file: Path, scenario: Path | None = None) -> str:
    """Return the error output of a run that must be refused before it changes anything."""
    done = user.do(user.run_command(scenario or user.scenario(), file))
    assert done.returncode == ExitCode.REFUSED, done.stderr
    assert not (user.folder / "runs").exists()
    assert user.cluster.ours() == []
    return done.stderr


def test_all_reasons_to_refuse_a_run_are_reported_at_once(user: User) -> None:
    scenario = user.scenario(QUIET, duration=LONG)
    scenario.write_text(
        scenario.read_text().replace(
            'topic = "clicks"', 'topic = "clicks"\nsettings = { "ssl.ca.location" = "till.pem" }'
        )
    )
    user.abort_file.touch()
    output = refused(
        user,
        user.file(
            faults__allowed="[]",
            limits__bytes_per_second='"10kB/s"',
            limits__storage='"10kB"',
            limits__deadline='"5s"',
            topics__replication="4",
        ),
        scenario,
    )

    for reason in (
        f"the abort file {user.abort_file} exists",
        "workload[0].settings.ssl.ca.location belongs in the cluster file or leaves the prefix",
        "crash_client is not allowed: faults.allowed has none",
        "limits.bytes_per_second is 10kB/s",
        "limits.storage is 10kB",
        "limits.deadline is 5s",
        "topics.replication is 4, and there are 3 brokers",
    ):
        assert reason in output


def test_the_cluster_id_must_be_typed_in_full(user: User) -> None:
    output = refused(user, user.file(cluster__id='"4L6g3nShT-eMCtK--X86sw"'))
    assert "--i-understand is" in output
    assert "type --i-understand 4L6g3nShT-eMCtK--X86sw" in output


@pytest.mark.parametrize("user", ["plain", pytest.param("scram", marks=pytest.mark.soak)], indirect=True)
def test_a_wrong_password_is_refused(user: User) -> None:
    output = refused(user, user.file(security__password='"env:HOME"'))
    assert "refused the login" in output
    assert "check [security] in the cluster file" in output


def test_a_prefix_without_rights_is_refused_with_each_missing_right(user: User) -> None:
    scenario = user.scenario(all_kinds=True)
    assert dry_run(user, user.file(), scenario) == []
    file = user.file(cluster__prefix='"other-prefix-"')
    output = refused(user, file, scenario)
    reasons = dry_run(user, file, scenario)
    # The user may describe all topics, groups and transactional ids.
    expected = (
        "no topic with the prefix may be created: creation of topic other-prefix-asked: TOPIC_AUTHORI",
        "this user lacks the right Read on topics that begin with other-prefix-",
        "this user lacks the right Read on groups that begin with other-prefix-",
        "this user lacks the right Delete on groups that begin with other-prefix-",
    )
    assert len(reasons) == len(expected)
    for reason in expected:
        assert reason in output
        assert any(reason in line for line in reasons)


@pytest.mark.soak
@pytest.mark.parametrize("user", ["plain", "scram"], indirect=True)
def test_a_wrong_user_is_refused(user: User) -> None:
    assert "refused the login" in refused(user, user.file(security__username='"stranger"'))


@pytest.mark.soak
@pytest.mark.parametrize("user", ["certificate"], indirect=True)
def test_a_listener_that_requires_a_certificate_refuses_a_user_without_one(user: User) -> None:
    nothing = {f"security__{name}": "" for name in ("certificate", "key", "key_password", "principal")}
    assert "certificate" in refused(user, user.file(**nothing))


@pytest.mark.soak
@pytest.mark.parametrize("user", ["certificate"], indirect=True)
def test_a_wrong_key_password_is_reported_with_the_key_file(user: User) -> None:
    done = user.do(user.run_command(user.scenario(), user.file(security__key_password='"env:HOME"')))
    assert done.returncode == ExitCode.USAGE
    assert "chaos.pem and its key cannot be used" in done.stderr


@pytest.mark.soak
def test_a_proxy_host_missing_from_the_certificate_is_refused(user: User) -> None:
    file = user.file(more=user.proxies(host="127.0.0.2"), faults__allowed='["down"]')
    output = refused(user, file, user.scenario(DOWN))
    assert "through 127.0.0.2:" in output
    assert "certificate is not valid for '127.0.0.2'" in output


def test_another_clusters_id_is_refused_even_if_typed(user: User) -> None:
    other = "4L6g3nShT-eMCtK--X86sw"
    command = user.command(
        "run", user.scenario(), "--cluster", user.file(cluster__id=f'"{other}"'), "--i-understand", other
    )
    done = user.do(command)

    assert done.returncode == ExitCode.REFUSED
    assert f"belongs to {user.cluster.cluster_id}" in done.stderr


def test_a_file_without_a_prefix_is_an_error_that_names_the_key(user: User) -> None:
    done = user.do(user.run_command(user.scenario(), user.file(cluster__prefix="")))

    assert done.returncode == ExitCode.USAGE
    assert "prefix is missing" in done.stderr


def test_a_proxy_that_clients_would_bypass_is_refused(user: User) -> None:
    """The proxies lead to a listener that advertises the brokers' own addresses instead of the proxies'."""
    proxies = user.proxies()
    for ports in user.cluster.ports.values():
        proxies = proxies.replace(
            f'upstream = "{HOST}:{ports["proxied"]}"', f'upstream = "{HOST}:{ports["straight"]}"'
        )
    assert dry_run(user, user.file(more=user.proxies(), faults__allowed='["down"]')) == []
    file = user.file(more=proxies, faults__allowed='["down"]')
    reasons = dry_run(user, file)
    output = refused(user, file)
    assert "clients would be redirected past the proxies" in output
    assert len(reasons) == 3
    assert all("clients would be redirected past the proxies" in line for line in reasons)
    assert user.left() == []


def begin(user: User) -> subprocess.Popen[str]:
    """Start a one-minute run whose fault keeps a link closed; wait until the link is closed."""
    file = user.file(more=user.proxies(), faults__allowed='["down"]')
    process = user.begin(user.run_command(user.scenario(DOWN, duration=LONG), file))
    user.wait_for_output(" bit after ")
    return process


def ended(user: User, why: str) -> None:
    """Check that the run stopped for the reason `why`, healed its injections, and left no process behind."""
    output = user.background_output()
    assert why in output.partition("stopped by the guard: ")[2]
    assert unhealed(State(user.state)) == []
    assert user.left() == []
    assert [line["why"] for line in user.audit() if line["action"] == "stop"] != []


def test_the_abort_file_heals_and_stops_the_run_at_once(user: User, evidence: Callable[..., None]) -> None:
    process = begin(user)
    user.abort_file.touch()

    assert end(process) == ExitCode.REFUSED, user.background_output()
    ended(user, "the abort file")
    evidence(audit=[line["action"] for line in user.audit()])


def test_a_foreign_partition_that_loses_a_replica_stops_the_run_and_the_next_is_refused(user: User) -> None:
    process = begin(user)
    user.cluster.kill(3)

    assert end(process) == ExitCode.REFUSED, user.background_output()
    ended(user, "foreign partitions are under-replicated")
    assert user.cluster.lacking() > 0
    done = user.do(user.run_command(user.scenario(), user.file()))
    assert done.returncode == ExitCode.REFUSED
    assert "the cluster is degraded: " in done.stderr
    assert user.cluster.ours() == []


@pytest.mark.soak
@pytest.mark.parametrize(
    ("cap", "value"), [("storage", '"10MB"'), ("bytes_per_second", '"60kB/s"')], ids=["storage", "rate"]
)
def test_writes_beyond_the_budget_heal_and_stop_the_run(user: User, cap: str, value: str) -> None:
    """A foreign client writes to a topic of the run; the estimate of writes does not include these bytes."""
    file = user.file(more=user.proxies(), faults__allowed='["down"]', **{f"limits__{cap}": value})
    process = user.begin(user.run_command(user.scenario(DOWN, duration=LONG), file))
    user.wait_for_output(" bit after ")
    (topic,) = user.cluster.ours()
    producer = Producer({"bootstrap.servers": user.cluster.servers, "linger.ms": 50})
    for _ in range(50_000):
        producer.produce(topic, b"x", partition=0)
    producer.flush(60)

    assert end(process) == ExitCode.REFUSED, user.background_output()
    ended(user, f"limits.{cap} is ")
    counted = [line["stored"] for line in user.audit() if line["action"] == "counted"]
    assert min(counted) > 10_000_000


def test_the_deadline_heals_and_stops_the_run(user: User) -> None:
    # The deadline is only half a second longer than the planned phases of the run. Creating the topics and
    # starting the clients takes longer than that half second, so the run must miss the deadline.
    file = user.file(more=user.proxies(), faults__allowed='["down"]', limits__deadline='"5500ms"')
    process = user.begin(user.run_command(user.scenario(DOWN, duration="3s"), file))

    assert end(process) == ExitCode.REFUSED, user.background_output()
    ended(user, "the deadline")


def test_a_killed_harness_is_healed_by_another_command(user: User, evidence: Callable[..., None]) -> None:
    process = begin(user)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    left = user.left()
    assert any("harness.clients" in command for command in left)
    assert any("toxiproxy" in command for command in left)
    assert user.cluster.ours() != []

    again = user.do(user.run_command(user.scenario(), user.folder / "cluster.toml"))
    assert again.returncode == ExitCode.REFUSED
    assert "not healed" in again.stderr

    healed = user.do(user.command("heal", "--cluster", user.folder / "cluster.toml"))
    assert healed.returncode == 0, healed.stderr
    assert "healing down on" in healed.stderr
    assert user.left() == []
    assert user.cluster.ours() == []
    nothing = user.do(user.command("heal", "--cluster", user.folder / "cluster.toml"))
    assert "there was nothing to heal" in nothing.stderr
    evidence(left=left, healed=healed.stderr.splitlines())


def test_a_second_run_is_refused_and_does_not_disturb_the_first(user: User) -> None:
    process = begin(user)
    ours = user.cluster.ours()
    again = user.do(user.run_command(user.scenario(), user.folder / "cluster.toml"))

    assert again.returncode == ExitCode.REFUSED
    assert "is changing the cluster of" in again.stderr
    assert any(
        "is changing the cluster of" in reason for reason in dry_run(user, user.folder / "cluster.toml")
    )
    assert user.cluster.ours() == ours
    assert any("toxiproxy" in command for command in user.left())
    user.abort_file.touch()
    assert end(process) == ExitCode.REFUSED, user.background_output()
    ended(user, "the abort file")


def test_a_harness_killed_between_faults_blocks_the_next_run_until_healed(
    user: User, evidence: Callable[..., None]
) -> None:
    process = user.begin(user.run_command(user.scenario(duration=LONG, all_kinds=True), user.file()))
    user.wait_for_output("== faults")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    again = user.do(user.run_command(user.scenario(), user.folder / "cluster.toml"))
    assert again.returncode == ExitCode.REFUSED
    assert "client processes still run" in again.stderr
    assert "topics and groups were not deleted" in again.stderr
    (reason,) = dry_run(user, user.folder / "cluster.toml")
    assert "client processes still run" in reason
    assert "topics and groups were not deleted" in reason

    healed = user.do(user.command("heal", "--cluster", user.folder / "cluster.toml"))
    assert healed.returncode == 0, healed.stderr
    assert "deleted group eos-chaos-billing." in healed.stderr
    assert user.left() == []
    assert user.cluster.ours() == []
    groups = user.cluster.client.list_consumer_groups(request_timeout=10).result(10).valid
    assert [group.group_id for group in groups if group.group_id.startswith(PREFIX)] == []
    evidence(refused=again.stderr.splitlines(), healed=healed.stderr.splitlines())


def test_a_password_in_the_file_is_an_error_that_does_not_print_it(user: User) -> None:
    written = "a-password-in-the-file"
    done = user.do(user.run_command(user.scenario(), user.file(security__password=f'"{written}"')))

    assert done.returncode == ExitCode.USAGE
    assert "security.password: a secret is in the file" in done.stderr
    assert written not in done.stderr
    assert PASSWORD not in done.stderr


def test_a_watch_has_the_interlocks_of_a_run(user: User) -> None:
    command = [
        "watch",
        "--cluster",
        user.file(),
        "--runs",
        user.folder / "runs",
        "--rounds",
        "1",
        "--round",
        "3s",
    ]
    without_consent = user.do(user.command(*command))
    assert without_consent.returncode == ExitCode.REFUSED, without_consent.stderr
    assert "--i-understand is missing" in without_consent.stdout + without_consent.stderr
    assert not (user.folder / "runs" / "canary").exists()

    done = user.do(user.command(*command, "--i-understand", user.cluster.cluster_id))
    assert done.returncode == ExitCode.VALID, done.stderr
    assert '"verdict":"valid"' in done.stdout
    assert user.cluster.ours() == []
