"""Packages and programs of other languages, installed or built once from pinned packages into the cache.

The harness has programs that drive client libraries, and an application under test may have packages of its
own. Each has a lock file of its language: hashes for pip, `go.sum` for Go, and `package-lock.json` for npm.
For Rust, `Cargo.toml` pins the version of each package.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.base.errors import MachineError
from harness.provision.java import OLDEST_JAVA, find_java
from harness.provision.paths import cache_dir, cache_lock, resource, scratch_dir

Report = Callable[[str], None]
_BUILD_LIMIT_S = 900


def python_packages(lock: Path, report: Report) -> Path:
    """Install the packages of a lock file into a folder of the cache, and return the folder."""

    def build(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
        _run([*pip, "--target", str(target), "--requirement", str(lock)], target.parent)

    return _built(lock.stem, lock, report, build)


def go_program(module: Path, report: Report, package: str = ".", *, cgo: bool = False) -> Path:
    """Build a package of a Go module, and return its binary. With `cgo`, it contains a C library."""
    name = module.name if package == "." else package

    def build(target: Path) -> None:
        go = _find("go", "install Go 1.26 or newer")
        scratch = target.parent
        shutil.copytree(module, scratch / "source")
        environment = {
            "CGO_ENABLED": str(int(cgo)),
            "GOPATH": str(scratch / "path"),
            "GOCACHE": str(scratch / "cache"),
            "GOFLAGS": "-modcacherw",  # without it, the module cache is read-only and cannot be removed
            "GOTOOLCHAIN": "local",
        }
        command = [go, "build", "-trimpath", "-o", f"{target}/{name}", f"./{package}"]
        _run(command, scratch / "source", environment)

    return _built(f"go-{name}", module, report, build) / name


def java_classes(program: Path, client: str, class_path: str, report: Report) -> Path:
    """Compile a Java program with a version of Kafka's client, and return the folder of its classes.

    Each start of the `java` command with a source file would compile it again, which takes longer than the
    start itself.
    """

    def build(target: Path) -> None:
        compiler = [str(find_java().executable), "--module", "jdk.compiler/com.sun.tools.javac.Main"]
        options = ["-nowarn", "--release", str(OLDEST_JAVA), "-d", str(target), "-cp", class_path]
        _run([*compiler, *options, str(program)], target.parent)

    return _built(f"java-{client}", program, report, build)


def rust_program(report: Report) -> Path:
    """Build the program of the Rust package, and return its binary."""
    source = resource("clients/rust")

    def build(target: Path) -> None:
        cargo = _find("cargo", "install Rust 1.80 or newer")
        scratch = target.parent
        shutil.copytree(source, scratch / "source")
        command = [cargo, "build", "--release", "--target-dir", str(scratch / "built")]
        _run(command, scratch / "source", {"CARGO_HOME": str(scratch / "cargo")})
        target.mkdir()
        shutil.copy2(scratch / "built" / "release" / "eos-harness-driver", target)

    return _built("rust", source, report, build) / "eos-harness-driver"


def node_program(name: str, report: Report, *, compiles: bool = False) -> Path:
    """Install the packages of a Node.js program beside it, and return its file.

    With `compiles`, a package contains a C library, which is compiled here: its own way to install would load
    a compiled one, for which package-lock.json has no hash.
    """
    source = resource(f"clients/{name}")

    def build(target: Path) -> None:
        npm = _find("npm", "install Node.js 20 or newer")
        shutil.copytree(source, target)
        command = [npm, "ci", "--no-audit", "--no-fund", *([] if compiles else ["--ignore-scripts"])]
        environment = {
            "npm_config_cache": str(target.parent / "npm"),
            "npm_config_build_from_source": "true",
            "CKJS_LINKING": "dynamic",  # with the OpenSSL and zlib of this machine
        }
        _run(command, target, environment)

    return _built(f"node-{name}", source, report, build) / "driver.js"


def pinned_packages(lock: Path) -> list[str]:
    """Return the packages that a lock file of pip pins, such as `aiokafka==0.14.0`."""
    return re.findall(r"^([\w.-]+==[\w.+!-]+)", lock.read_text(), re.MULTILINE)


def required_modules(module: Path) -> list[str]:
    """Return the modules that a Go module requires directly, with their versions."""
    text = (module / "go.mod").read_text()
    return re.findall(r"^(?:require)?\s+([\w./-]+ v[\w.+-]+)$", text, re.MULTILINE)


def find_node() -> str:
    """Return the path of `node`. Raise MachineError if it is missing."""
    return _find("node", "install Node.js 20 or newer")


def _built(name: str, source: Path, report: Report, build: Callable[[Path], None]) -> Path:
    """Return the folder that `build` makes from these sources. Build it if the cache lacks it."""
    folder = cache_dir() / "clients" / f"{name}-{_digest(source)}"
    if folder.exists():
        return folder
    with cache_lock(), scratch_dir("client") as scratch:
        if not folder.exists():  # another command may have built it while this one waited for the lock
            report(f"building {name} into {folder}")
            target = scratch / "target"
            build(target)
            folder.parent.mkdir(exist_ok=True)
            target.replace(folder)
    return folder


def _digest(source: Path) -> str:
    """Return a hash of the content of a file, or of all files of a folder and their names."""
    files = sorted(file for file in source.rglob("*") if file.is_file()) if source.is_dir() else [source]
    content = b"\0".join(str(file.relative_to(source.parent)).encode() + file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()[:12]


def _find(program: str, hint: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise MachineError(f"no {program} was found on PATH", hint)
    return path


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=_BUILD_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise MachineError(
            f"`{' '.join(map(str, command[:3]))} ...` failed: {(done.stderr or done.stdout).strip()[-400:]}",
            "nothing was installed; check the network and the version of the program, and run it again",
        )
