"""The Docker command that runs an instance of the application in a container.

The container uses the network of this host, so it reaches the proxies and the wire tap at 127.0.0.1.
The folders for state, rendered files and logs are mounted under the same paths as outside.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.app.app_spec import AppLimits, AppSpec
from harness.app.launch_template import uses_any
from harness.provision.app_processes import docker_program, service_image
from harness.provision.jars import jars_folder

LABEL: Final = "eos-harness.app"
_WRITABLE: Final = 0o777  # a container may run as any user


def container_name(mark: str, instance: str, number: int) -> str:
    """Return the name of the container of one start. Starts of other runs have other names."""
    return f"eos-{hashlib.sha256(mark.encode()).hexdigest()[:10]}-{instance}-{number}"


def container_command(
    spec: AppSpec,
    command: list[str],
    *,
    name: str,
    variables: list[str],
    mounts: Sequence[Path],
    folder: Path,
) -> list[str]:
    """Return the command that runs the container and copies its output.

    `variables` are the names of the variables that the container gets from the environment of the command.
    """
    for mount in mounts:
        mount.chmod(_WRITABLE)
    options = ["--name", name, "--label", f"{LABEL}={spec.name}"]
    options += [part for mount in mounts for part in ("--volume", f"{mount}:{mount}")]
    if uses_any(spec.all_texts, "jars"):
        options += ["--volume", f"{jars_folder()}:{jars_folder()}:ro"]
    options += [part for variable in variables for part in ("--env", variable)]
    if spec.compose:
        return _compose_command(spec, options, command, folder)
    limits = ["--memory", str(int(spec.limits.memory)), "--log-driver", "none"]
    limits += ["--cpus", str(spec.limits.cores)] if spec.limits.cores else []
    return [docker_program(), "run", "--network", "host", *limits, *options, spec.image, *command]


def java_options(limits: AppLimits) -> dict[str, str]:
    """Return the variable by which every Java program of an instance learns its limits."""
    options = [f"-XX:MaxRAM={int(limits.memory)}"]
    options += [f"-XX:ActiveProcessorCount={limits.cores}"] if limits.cores else []
    return {"JAVA_TOOL_OPTIONS": " ".join(options)}


def split_compose(compose: str) -> tuple[str, str]:
    """Return the file and the service of the key `compose`; the service is empty if there is none."""
    file, _, service = compose.partition("#")
    return file, service


def app_image(spec: AppSpec) -> str:
    """Return the name of the image in which the application runs; empty if it runs in no container."""
    if not spec.compose:
        return spec.image
    path, service = _service(spec)
    return service_image(path, _project(spec), service)


def _service(spec: AppSpec) -> tuple[Path, str]:
    file, service = split_compose(spec.compose)
    return (Path(spec.directory) / file).resolve(), service


def _project(spec: AppSpec) -> str:
    return f"eos-app-{spec.name.lower()}"


def _compose_command(spec: AppSpec, options: list[str], command: list[str], folder: Path) -> list[str]:
    path, service = _service(spec)
    changed = folder / "compose-changes.yml"
    changed.write_text(_changes(service, spec.limits))
    base = [docker_program(), "compose", "--file", str(path), "--file", str(changed)]
    project = ["--project-name", _project(spec), "--project-directory", str(path.parent)]
    return [*base, *project, "run", "--no-deps", "--no-TTY", *options, service, *command]


def _changes(service: str, limits: AppLimits) -> str:
    """Return the second compose file, which changes the network and the limits of the service."""
    cores = [f"    cpus: {limits.cores}"] if limits.cores else []
    lines = [
        "services:",
        f"  {json.dumps(service)}:",
        "    network_mode: host",
        "    networks: !reset null",
        "    ports: !reset []",
        "    depends_on: !reset {}",
        f"    mem_limit: {int(limits.memory)}",
        *cores,
        "    logging: {driver: none}",
    ]
    return "\n".join(lines) + "\n"
