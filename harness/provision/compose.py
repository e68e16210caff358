"""Start and removal of services of docker-compose.yml, through the library testcontainers."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from harness.base.errors import HarnessError
from harness.provision.paths import resource

COMPOSE_LIMIT_S = 300
_T = TypeVar("_T")


class ComposeProject:
    """A group of services of docker-compose.yml that are started with one env file.

    If no services are named, the group consists of the services of the cluster.
    """

    def __init__(self, env_file: Path, services: Sequence[str] = (), profiles: Sequence[str] = ()) -> None:
        self._env_file = env_file.resolve()
        self._options: dict[str, Any] = {"services": [*services] or None, "profiles": [*profiles] or None}

    def start(self, *, wait: bool = False) -> None:
        """Create and start the services. With `wait`, return only after they are healthy."""
        self._run("start", lambda compose: compose.start(), wait=wait)

    def remove(self) -> None:
        """Stop and remove the services and their volumes."""
        self._run("removal", lambda compose: compose.stop(down=True))

    def log(self, service: str) -> str:
        """Return the output of a service."""
        return self._run("log", lambda compose: "".join(compose.get_logs(service)))

    def _run(self, what: str, action: Callable[[Any], _T], *, wait: bool = False) -> _T:
        """Run docker compose through testcontainers, with a time limit, which testcontainers lacks."""
        from testcontainers.compose import DockerCompose

        # testcontainers logs the output of a failed command. The error that is raised below already contains
        # this output.
        logging.getLogger("testcontainers.compose.compose").setLevel(logging.CRITICAL)
        compose = DockerCompose(
            context=resource("docker-compose.yml").parent,
            compose_file_name="docker-compose.yml",
            env_file=str(self._env_file),
            wait=wait,
            **self._options,
        )
        with self._environment(), ThreadPoolExecutor(1) as thread:
            running = thread.submit(action, compose)
            try:
                return running.result(COMPOSE_LIMIT_S)
            except TimeoutError as error:
                raise HarnessError(
                    f"the {what} of `docker compose` did not end in {COMPOSE_LIMIT_S} s",
                    "run `eos doctor`, which checks the Docker engine",
                ) from error
            except subprocess.CalledProcessError as error:
                output = error.stderr.decode(errors="replace").strip()[-600:]
                raise HarnessError(
                    f"the {what} of `docker compose` failed: {output}", "run `eos doctor`"
                ) from error
            finally:
                # End the docker commands that still run. After Ctrl-C or a time-out, the `with` block would
                # otherwise wait for them.
                self._kill_commands()

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """Remove environment variables that would override the env file.

        They may have been set for another cluster. They are restored at the end of the `with` block.
        """
        in_file = {line.split("=")[0] for line in self._env_file.read_text().splitlines()}
        hidden = {
            name: value
            for name, value in os.environ.items()
            if name in in_file or name.startswith("COMPOSE_")
        }
        for name in hidden:
            del os.environ[name]
        try:
            yield
        finally:
            os.environ.update(hidden)

    def _kill_commands(self) -> None:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if str(self._env_file) in process.cmdline():
                    process.kill()


def write_env_file(path: Path, variables: Mapping[str, str]) -> None:
    """Write an env file, which sets variables that docker-compose.yml uses."""
    path.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
