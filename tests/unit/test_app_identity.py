"""The identity of an application: what a replay command does not contain."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import msgspec
import pytest

from harness.app.app_spec import AppSpec
from harness.run.environment import app_identity, describe_identity

DIGEST = f"sha256:{'4f' * 32}"
DOCKER = f"""#!/bin/sh
case "$*" in
"image inspect"*" shop/billing:7") echo "images.example/shop/billing@{DIGEST}" ;;
"image inspect"*" eos-app-app-built") echo "{DIGEST}" ;;
"compose"*"config"*" billing") echo '{{"services": {{"billing": {{"image": "shop/billing:7"}}}}}}' ;;
"compose"*"config"*" built") echo '{{"services": {{"built": {{"build": {{"context": "."}}}}}}}}' ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a Docker client with two images and two services on the PATH."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize(
    ("key", "value", "identity", "text"),
    [
        ("image", "shop/billing:7", {"shop/billing:7": DIGEST}, "shop/billing:7 4f4f4f4f4f4f"),
        ("image", "shop/none", {"shop/none": "not present"}, "shop/none not present"),
        ("compose", "s.yml#billing", {"shop/billing:7": DIGEST}, "shop/billing:7 4f4f4f4f4f4f"),
        ("compose", "s.yml#built", {"eos-app-app-built": DIGEST}, "eos-app-app-built 4f4f4f4f4f4f"),
        ("compose", "s.yml#none", {}, ""),
    ],
)
def test_a_container_is_identified_by_the_digest_of_its_image(
    tmp_path: Path, key: str, value: str, identity: dict[str, str], text: str
) -> None:
    found = app_identity(msgspec.structs.replace(AppSpec(directory=str(tmp_path)), **{key: value}))

    assert found == identity
    assert describe_identity(found) == text


def test_files_and_the_commit_of_their_folder_identify_an_application(tmp_path: Path) -> None:
    for name in ("app.jar", "libs.jar", "jars.lock", "packages.txt", "untouched.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / "go.sum").write_text("billing/go.sum")
    spec = AppSpec(
        command=["java", "-cp", "app.jar:libs.jar", "Billing", "{jars:jars.lock}", "{jars:kafka}"],
        env={"PYTHONPATH": "{pip:packages.txt}", "PROGRAM": "{go:billing}"},
        directory=str(tmp_path),
    )
    names = ["app.jar", "billing/go.sum", "jars.lock", "libs.jar", "packages.txt"]
    files = {name: f"sha256:{hashlib.sha256(name.encode()).hexdigest()}" for name in names}
    assert app_identity(spec) == files

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "all")
    commit = git("rev-parse", "HEAD").strip()
    assert app_identity(spec) == files | {"commit": commit}
    assert describe_identity(app_identity(spec)).endswith(f", commit {commit[:12]}")

    (tmp_path / "untouched.py").write_text("changed")
    assert app_identity(spec) == files | {"commit": f"{commit}+changes"}
    assert describe_identity(app_identity(spec)).endswith(f", commit {commit[:12]}+changes")
