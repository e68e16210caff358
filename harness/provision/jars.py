"""Jars of Kafka and Spark, fetched with Ivy and checked against pinned SHA-256 hashes.

The file `jars.lock` pins the jars of Spark's Kafka connector, of Kafka's tools and of its newest Java
client. Each version of Kafka has a lock file of its own for its brokers and controllers, and its jars are
fetched when a cluster needs them. An application under test may have a lock file of its own, whose jars are
fetched when a scenario with it is run.

Neither Maven nor Gradle is needed: PySpark contains Ivy, and Ivy needs only Java. After the hash of a jar was
checked, an atomic rename moves it into the shared cache. Every jar in the cache is therefore complete and
verified.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal
from xml.sax.saxutils import quoteattr

from harness.base.errors import HarnessError, UsageError
from harness.provision.java import find_java
from harness.provision.kafka_versions import DEFAULT_KAFKA, NEWEST_CLIENT, check_version, lock_folder
from harness.provision.paths import cache_dir, cache_lock, resource, scratch_dir

LOCK_FILE = resource("jars.lock")
JarSet = Literal["kafka", "client", "tools", "spark"]
"""Sets of pinned jars."""
_APP_LINE: Final = "GROUP:ARTIFACT:VERSION HASH"
_APP_PATTERN: Final = re.compile(r"([\w.-]+):([\w.-]+):([\w.+-]+)\s+([0-9a-f]{64}|-)")

# The resolver names no repository URL, so it uses Ivy's default repository. Downloads of POMs, sources,
# javadoc and remote checksums are switched off, because versions and hashes are pinned. Looking for these
# files would triple the requests.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="main"/>
  <caches defaultCacheDir={cache} />
  <property name="ivy.checksums" value=""/>
  <resolvers>
    <ibiblio name="main" m2compatible="true" usepoms={poms} useMavenMetadata="false" checksums=""/>
  </resolvers>
</ivysettings>
"""


@dataclass(frozen=True)
class Jar:
    """One jar: its jar set, its Maven coordinates and its SHA-256 hash.

    The driver of a user's database belongs to the set `driver`, and has no pinned hash. The jars in the lock
    file of an application belong to the set `app`.
    """

    jar_set: JarSet | Literal["driver", "app"]
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def path(self) -> Path:
        """Path of the verified jar in the shared cache."""
        if self.jar_set == "app":
            return jars_folder() / "app" / self.fetched_name
        return jars_folder() / f"{self.artifact}-{self.version}.jar"

    @property
    def fetched_name(self) -> str:
        """File name that Ivy gives to the fetched jar.

        It contains the Maven group, so that no two jars have the same file name.
        """
        return f"{self.group}--{self.artifact}--{self.version}.jar"


def jars_folder() -> Path:
    """Return the folder of the verified jars in the shared cache."""
    return cache_dir() / "jars"


def read_lock(lock: Path) -> list[Jar]:
    """Return the jars of a lock file, in its order."""
    jars = []
    for line in lock.read_text().splitlines():
        if line and not line.startswith("#"):
            jar_set, coordinates, sha256 = line.split()
            group, artifact, version = coordinates.split(":")
            jars.append(Jar(jar_set, group, artifact, version, sha256))  # type: ignore[arg-type]
    return jars


def read_app_lock(lock: Path) -> list[Jar]:
    """Return the jars of an application's lock file: lines of Maven coordinates and a SHA-256 hash.

    Raise UsageError if there is no such file, or if one of its lines is something else.
    """
    try:
        lines = lock.read_text().splitlines()
    except OSError as error:
        raise UsageError(
            f"{lock}: {error.strerror}", f"write lines such as {_APP_LINE!r} into it, or correct its name"
        ) from error
    jars = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _APP_PATTERN.fullmatch(line.strip())
        if match is None:
            raise UsageError(
                f"{lock}:{number}: {line.strip()[:100]!r} is not coordinates and a SHA-256 hash",
                f"write {_APP_LINE!r}; if HASH is -, `python -m harness.provision.jars {lock}` fills it in",
            )
        jars.append(Jar("app", *match.groups()))
    if not jars:
        raise UsageError(f"{lock} names no jar", f"write lines such as {_APP_LINE!r} into it")
    return jars


def kafka_lock(kafka: str) -> Path:
    """Return the lock file of a version of Kafka."""
    return lock_folder() / f"{check_version(kafka)}.lock"


def pinned_jars(kafka: str = DEFAULT_KAFKA) -> list[Jar]:
    """Return the pinned jars, with the brokers' jars of one version of Kafka.

    They are in the order of the lock files, with the brokers' jars first. The class path uses the same order.
    """
    return read_lock(kafka_lock(kafka)) + read_lock(LOCK_FILE)


def class_path(*sets: JarSet, kafka: str = DEFAULT_KAFKA) -> list[Path]:
    """Return the paths of the jars of these jar sets, in the order of the lock files.

    A class-data archive is valid for this order only.
    """
    return [jar.path for jar in pinned_jars(kafka) if jar.jar_set in sets]


def ensure_jars(report: Callable[[str], None], *sets: JarSet, kafka: str = DEFAULT_KAFKA) -> list[Path]:
    """Fetch and verify the missing jars of these jar sets. Return the class path of the jar sets."""
    what = ", ".join(f"kafka {kafka}" if name == "kafka" else name for name in sets)
    _ensure([jar for jar in pinned_jars(kafka) if jar.jar_set in sets], what, report)
    return class_path(*sets, kafka=kafka)


def ensure_client(report: Callable[[str], None], version: str) -> list[Path]:
    """Fetch and verify what is missing of a version of Kafka's Java client. Return its class path.

    The newest client has no broker, and logs with the logger of the default version.
    """
    if version != NEWEST_CLIENT:
        return ensure_jars(report, "kafka", kafka=version)
    jars = [jar for jar in pinned_jars() if jar.jar_set == "client" or jar.group == "org.slf4j"]
    _ensure(jars, f"client {version}", report)
    return [jar.path for jar in jars]


def ensure_app_jars(report: Callable[[str], None], lock: Path) -> list[Path]:
    """Fetch and verify the missing jars of an application's lock file. Return all of them, as it lists them.

    Jars that were fetched before are verified again, because another lock file may pin other hashes.
    """
    jars = read_app_lock(lock)
    if unpinned := [f"{jar.group}:{jar.artifact}:{jar.version}" for jar in jars if jar.sha256 == "-"]:
        raise UsageError(
            f"{lock} pins no hash of {', '.join(unpinned)}", f"run `python -m harness.provision.jars {lock}`"
        )
    _ensure(jars, lock.name, report)
    for jar in jars:
        if sha256_of(jar.path) != jar.sha256:
            raise HarnessError(
                f"{jar.path} does not have the SHA-256 that {lock} pins",
                "correct the line in the lock file, or delete the jar: the next run fetches it again",
            )
    return [jar.path for jar in jars]


def _ensure(jars: list[Jar], what: str, report: Callable[[str], None]) -> None:
    """Fetch and verify those of these jars that are missing in the cache."""
    if all(jar.path.exists() for jar in jars):
        return
    with cache_lock():
        missing = [jar for jar in jars if not jar.path.exists()]
        if not missing:
            return
        report(f"fetching {len(missing)} jars ({what}) into {jars_folder()}")
        with scratch_dir("ivy") as scratch:
            fetched = _resolve(missing, scratch)
            files = {jar: fetched / jar.fetched_name for jar in missing}
            for jar, file in files.items():
                _verify(jar, file)
            for jar, file in files.items():
                _admit(jar, file)


def fetch_into(folder: Path, jars: list[Jar]) -> None:
    """Fetch jars without pinned hashes into a folder. The caller holds the lock of the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_dir("ivy") as scratch:
        fetched = _resolve(jars, scratch)
        for jar in jars:
            (fetched / jar.fetched_name).replace(folder / jar.fetched_name)


def altered_jars(sets: Iterable[JarSet], kafka: Iterable[str] = (DEFAULT_KAFKA,)) -> list[Path]:
    """Return the cached jars of these sets, for these versions of Kafka, whose hash is not the pinned one."""
    wanted = set(sets)
    jars = dict.fromkeys(jar for version in kafka for jar in pinned_jars(version) if jar.jar_set in wanted)
    return [jar.path for jar in jars if jar.path.exists() and sha256_of(jar.path) != jar.sha256]


def _verify(jar: Jar, fetched: Path) -> None:
    """Raise HarnessError if a fetched jar does not have the pinned hash."""
    actual = sha256_of(fetched)
    if actual != jar.sha256:
        raise HarnessError(
            f"{jar.group}:{jar.artifact}:{jar.version} has SHA-256 {actual}, pinned is {jar.sha256}",
            "nothing was installed; if the change is intended, correct its line in the lock file",
        )


def _admit(jar: Jar, fetched: Path) -> None:
    """Move a verified jar into the shared cache."""
    jar.path.parent.mkdir(parents=True, exist_ok=True)
    # The class-data archive records the mtime of each jar, so every fetch must set the same mtime.
    os.utime(fetched, (1_000_000_000, 1_000_000_000))
    fetched.replace(jar.path)


def _resolve(jars: list[Jar], scratch: Path) -> Path:
    """Fetch these jars with Ivy into a subfolder of `scratch`. Return the path of the subfolder."""
    return _run_ivy([(j.group, j.artifact, j.version) for j in jars], scratch)


def fetch_closure(group: str, artifact: str, version: str, scratch: Path) -> Path:
    """Fetch a jar and all jars that it needs at run time, as its POM names them.

    They are fetched into a subfolder of `scratch`, whose path is returned. Their hashes are not checked.
    """
    return _run_ivy([(group, artifact, version)], scratch, transitive=True)


def _run_ivy(coordinates: list[tuple[str, str, str]], scratch: Path, *, transitive: bool = False) -> Path:
    """Fetch jars with Ivy into a subfolder of `scratch`. Return the path of the subfolder."""
    how = 'conf="default->default"' if transitive else 'transitive="false"'
    dependencies = "\n".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" {how}/>'
        for group, artifact, version in coordinates
    )
    conflicts = "" if transitive else '<conflict manager="all"/>'
    poms = quoteattr("true" if transitive else "false")
    (scratch / "settings.xml").write_text(
        _SETTINGS.format(cache=quoteattr(str(scratch / "cache")), poms=poms)
    )
    (scratch / "ivy.xml").write_text(
        f'<ivy-module version="2.0"><info organisation="eos" module="jars"/>'
        f"<dependencies>{dependencies}{conflicts}</dependencies></ivy-module>"
    )
    target = scratch / "jars"
    command = [
        str(find_java().executable),
        "-XX:TieredStopAtLevel=1",
        "-jar",
        str(_ivy_jar()),
        "-settings",
        str(scratch / "settings.xml"),
        "-ivy",
        str(scratch / "ivy.xml"),
        "-types",
        "jar",
        "bundle",
        "-retrieve",
        str(target / "[organisation]--[artifact]--[revision].[ext]"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        unresolved = [line.strip() for line in done.stdout.splitlines() if "not found" in line]
        raise HarnessError(
            f"Ivy could not fetch the jars: {'; '.join(unresolved[:3]) or done.stdout[-500:]}",
            "check the network (a proxy is set with JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...) and run again",
        )
    return target


def _ivy_jar() -> Path:
    """Return the path of the Ivy jar in the installed PySpark, without importing PySpark."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    candidates = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not candidates:
        raise HarnessError(
            "the Ivy jar of PySpark was not found", "run `make venv` to install the dependencies"
        )
    return candidates[0]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 hash of a file, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pin(lock: Path = LOCK_FILE, read: Callable[[Path], list[Jar]] = read_lock) -> None:
    """Fetch each jar whose hash in the lock file is `-`, and write its hash there.

    Maintainers use this to add a jar, and users for the lock file of their application.
    """
    new = {jar: "" for jar in read(lock) if jar.sha256 == "-"}
    if not new:
        return
    with cache_lock(), scratch_dir("ivy") as scratch:
        fetched = _resolve(list(new), scratch)
        for jar in new:
            new[jar] = sha256_of(fetched / jar.fetched_name)
    text = lock.read_text()
    for jar, sha256 in new.items():
        line = re.escape(f"{jar.group}:{jar.artifact}:{jar.version}")
        text = re.sub(rf"^((?:\w+ )?{line}\s+)-$", rf"\g<1>{sha256}", text, flags=re.MULTILINE)
    lock.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:]:
        pin(Path(sys.argv[1]), read_app_lock)
    else:
        pin()
    sys.exit(0)
