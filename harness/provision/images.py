"""The three images that the compose back end runs: present, else pulled, else built from packages.

Kafka and Toxiproxy are the official images wherever a registry answers. Where none does, compatible ones are
built: a base system out of Debian's packages, Kafka from its jars, Toxiproxy from its Go module. The third
image, which cuts links, is always our own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.errors import HarnessError
from harness.provision.image_build import CONTENT_LABEL, Recipe, build, recipes
from harness.provision.paths import cache_lock, checkout_dir, resource

if TYPE_CHECKING:
    from docker import DockerClient

_SLIM_BASE = "debian:bookworm-slim"
_OURS = "eos-harness/"
_VARIABLES = {"kafka": "EOS_KAFKA_IMAGE", "toxiproxy": "EOS_TOXIPROXY_IMAGE"}

# How long a registry may take to say whether it has an image: it answers in two seconds or not at all.
REGISTRY_SECONDS = 8
# How long the engine may take over one call of a pull or a build.
_ENGINE_SECONDS = 900

Report = Callable[[str], None]


@dataclass(frozen=True)
class Images:
    """The images to run, and which of them were built here instead of pulled."""

    kafka: str
    toxiproxy: str
    nettools: str
    built: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell docker-compose.yml about them."""
        return {_VARIABLES["kafka"]: self.kafka, _VARIABLES["toxiproxy"]: self.toxiproxy}


@cache
def official_images() -> dict[str, str]:
    """The official images by purpose, as docker-compose.yml names them."""
    text = resource("docker-compose.yml").read_text()
    found = {name: re.search(rf"\$\{{{variable}:-([^}}]+)\}}", text) for name, variable in _VARIABLES.items()}
    return {name: match[1] for name, match in found.items() if match}


def find_images() -> dict[str, str | None]:
    """What of kafka, toxiproxy, nettools the engine has now, by name; nothing is fetched or built."""
    client = _engine()
    return {name: _present(client, recipe) for name, recipe in recipes().items() if name != "base"}


def ensure_images(report: Report, env_file: Path | None = None) -> Images:
    """Return images that are present on the engine, pulling or building what is missing.

    What was built is also written to `env_file` (the checkout's .env): plain `docker compose` finds it there.
    """
    client = _engine()
    found = {name: _present(client, recipe) for name, recipe in recipes().items()}
    if any(found[name] is None for name in ("kafka", "toxiproxy", "nettools")):
        # Not with the cache's own lock, which a build takes on its way.
        with cache_lock("images.lock"):
            found = _provide(client, report)
    kafka, toxiproxy, nettools = (found[name] or "" for name in ("kafka", "toxiproxy", "nettools"))
    built = tuple(image for image in (kafka, toxiproxy) if image.startswith(_OURS))
    images = Images(kafka, toxiproxy, nettools, built)
    env_file = env_file or _env_file()
    if env_file:
        _write_env(env_file, images)
    return images


def _provide(client: DockerClient, report: Report) -> dict[str, str | None]:
    """Pull or build every image that is missing."""
    wanted = recipes()
    found = {name: _present(client, recipe) for name, recipe in wanted.items()}
    for name in _VARIABLES:
        if found[name] is None:
            found[name] = _pull_chosen(client, name, report)
        if found[name] is None:
            break  # no registry for one image: do not wait for the other's to say the same
    missing = [name for name in _VARIABLES if found[name] is None]
    if missing:
        report(f"no image registry answers: building {' and '.join(missing)} from packages (a minute, once)")
    if found["nettools"] is None and found["base"] is None and "kafka" not in missing:
        found["base"] = _SLIM_BASE if _pull(client, _SLIM_BASE, report) else None
    needs_base = found["kafka"] is None or found["nettools"] is None
    for name in ("base", "kafka", "toxiproxy", "nettools"):
        if found[name] is None and (name != "base" or needs_base):
            found[name] = build(client, wanted[name], found["base"] or "", report)
    return found


def _pull_chosen(client: DockerClient, name: str, report: Report) -> str | None:
    """Pull the image that the user chose for this purpose, which must succeed, or else the official one."""
    variable = _VARIABLES[name]
    chosen = _chosen(variable)
    image = chosen or official_images()[name]
    if _pull(client, image, report):
        return image
    if chosen:
        raise HarnessError(
            f"{variable}={chosen} is not present and cannot be pulled",
            f"unset {variable} (also in .env), and the official image is pulled or a compatible one built",
        )
    return None


def _engine() -> DockerClient:
    """A client of the engine that the docker command would use."""
    import docker
    from docker.errors import DockerException

    try:
        return docker.from_env(timeout=_ENGINE_SECONDS)
    except DockerException as error:
        raise HarnessError(
            f"no Docker engine answers: {error}",
            "start Docker; on a Debian-like machine as root: scripts/install-docker.sh",
        ) from error


def _present(client: DockerClient, recipe: Recipe) -> str | None:
    """What the engine has for this purpose: the user's choice, the official image, or ours if up to date."""
    from docker.errors import ImageNotFound

    chosen = _chosen(_VARIABLES.get(recipe.name, ""))
    if chosen and chosen != recipe.tag:
        candidates = [chosen]
    else:
        official = official_images().get(recipe.name)
        candidates = [official, recipe.tag] if official else [recipe.tag]
    for candidate in candidates:
        with suppress(ImageNotFound):
            image = client.images.get(candidate)
            if candidate != recipe.tag or image.labels.get(CONTENT_LABEL) == recipe.content:
                return candidate
    return None


def _pull(client: DockerClient, image: str, report: Report) -> bool:
    """Pull an image if its registry answers in time; the pull itself may take as long as it needs."""
    import docker
    import requests
    from docker.errors import APIError

    asking = docker.from_env(timeout=REGISTRY_SECONDS)
    try:
        asking.images.get_registry_data(image)
        report(f"pulling {image}")
        client.images.pull(image)
    except (APIError, requests.RequestException):
        return False
    finally:
        asking.close()
    return True


def _chosen(variable: str) -> str:
    """The image that the user chose, in the environment or in .env; empty if it is left to us."""
    env_file = _env_file()
    lines = _env_lines(env_file) if env_file else []
    in_file = next((line.partition("=")[2] for line in lines if line.startswith(f"{variable}=")), "")
    return os.environ.get(variable) or ("" if in_file.startswith(_OURS) else in_file)


def _write_env(env_file: Path, images: Images) -> None:
    """Name the built images in the .env of the checkout and leave its other lines alone."""
    old = _env_lines(env_file)
    kept = [line for line in old if not re.match(rf"({'|'.join(_VARIABLES.values())})={_OURS}", line)]
    theirs = {line.split("=")[0] for line in kept}
    ours = [
        f"{name}={image}"
        for name, image in images.environment.items()
        if image in images.built and name not in theirs
    ]
    if kept + ours != old:
        env_file.write_text("".join(f"{line}\n" for line in kept + ours))


def _env_file() -> Path | None:
    """Return the .env that plain `docker compose` reads in a checkout; None outside a checkout."""
    checkout = checkout_dir()
    return checkout / ".env" if checkout else None


def _env_lines(env_file: Path) -> list[str]:
    return env_file.read_text().splitlines() if env_file.exists() else []
