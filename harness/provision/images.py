"""The three images of the compose back end. Each is used if present, else pulled, else built from packages.

Kafka and Toxiproxy are the official images if a registry answers. Otherwise this module builds compatible
images: a base system from Debian's packages, Kafka from its jars, Toxiproxy from its Go module. The third
image, nettools, cuts links between nodes. It is always built.
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

from harness.base.errors import HarnessError, MachineError
from harness.provision.docker_engine import ENGINE_HINT
from harness.provision.image_build import CONTENT_LABEL, HARNESS_LABEL, Recipe, build, recipes
from harness.provision.kafka_versions import DEFAULT_KAFKA
from harness.provision.paths import cache_lock, checkout_dir, resource

if TYPE_CHECKING:
    from docker import DockerClient

_SLIM_BASE = "debian:bookworm-slim"
_OURS = "eos-harness/"
_LIBRARIES = "/opt/kafka/libs"
_VARIABLES = {"kafka": "EOS_KAFKA_IMAGE", "toxiproxy": "EOS_TOXIPROXY_IMAGE"}

# Time limit in seconds for a registry to report whether it has an image. A registry that works needs about
# two seconds.
REGISTRY_SECONDS = 8
# Time limit in seconds for one call to the Docker engine during a pull or a build.
_ENGINE_SECONDS = 900

Report = Callable[[str], None]


@dataclass(frozen=True)
class Images:
    """The images that a cluster uses. `built` lists those of them that were built on this machine.

    `version` is the version of Kafka in the image `kafka`.
    """

    kafka: str
    toxiproxy: str
    nettools: str
    built: tuple[str, ...] = ()
    version: str = DEFAULT_KAFKA

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that name the images for docker-compose.yml."""
        return {_VARIABLES["kafka"]: self.kafka, _VARIABLES["toxiproxy"]: self.toxiproxy}


@dataclass(frozen=True)
class KafkaChoice:
    """The Kafka that a cluster shall have: a version, or an image that the user names."""

    version: str = DEFAULT_KAFKA
    image: str = ""

    def chosen(self, name: str) -> str:
        """Return the image that the user chose for kafka or toxiproxy; empty if the user chose none."""
        if name == "kafka" and (self.image or self.version != DEFAULT_KAFKA):
            return self.image
        return _chosen(_VARIABLES.get(name, ""))

    def official(self, name: str) -> str:
        """Return the official image for kafka or toxiproxy; empty if there is none of this name."""
        image = official_images().get(name, "")
        return f"{image.partition(':')[0]}:{self.version}" if name == "kafka" else image


@cache
def official_images() -> dict[str, str]:
    """Return the official images, by the names kafka and toxiproxy.

    They are the defaults in docker-compose.yml.
    """
    text = resource("docker-compose.yml").read_text()
    defaults = {n: re.search(rf"\$\{{{variable}:-([^}}]+)\}}", text) for n, variable in _VARIABLES.items()}
    return {name: match[1] for name, match in defaults.items() if match}


def find_images() -> dict[str, str | None]:
    """Return, for each image name, the image that the Docker engine already has.

    The value is None if the Docker engine does not have the image.
    """
    client = _engine()
    wanted = KafkaChoice()
    return {name: _present(client, recipe, wanted) for name, recipe in recipes().items() if name != "base"}


def ensure_images(
    report: Report, env_file: Path | None = None, *, kafka: str = DEFAULT_KAFKA, kafka_image: str = ""
) -> Images:
    """Pull or build the missing images. Return all images, which are now present in the Docker engine.

    `kafka` is the version of Kafka. `kafka_image` names an image of Kafka, which replaces it.

    If images were built, write their names to `env_file`, by default the .env file of the checkout. A user
    who calls `docker compose` without the harness then gets these images, because `docker compose` reads that
    file.
    """
    client = _engine()
    wanted = KafkaChoice(kafka, kafka_image)
    present = {name: _present(client, recipe, wanted) for name, recipe in recipes(kafka).items()}
    if any(present[name] is None for name in ("kafka", "toxiproxy", "nettools")):
        # The build of an image takes the general cache lock itself, so hold a different lock here.
        with cache_lock("images.lock"):
            present = _provide(client, wanted, report)
    names = (present[name] or "" for name in ("kafka", "toxiproxy", "nettools"))
    kafka_found, toxiproxy, nettools = names
    built = tuple(image for image in (kafka_found, toxiproxy) if image.startswith(_OURS))
    chosen = wanted.chosen("kafka")
    version = _version_in(client, chosen) if chosen else kafka
    images = Images(kafka_found, toxiproxy, nettools, built, version)
    env_file = env_file or _env_file()
    if env_file and wanted == KafkaChoice():
        _write_env(env_file, images)
    return images


def _version_in(client: DockerClient, image: str) -> str:
    """Return the version of Kafka in an image, which the name of the jar kafka-clients contains."""
    listed = client.containers.run(
        image, [_LIBRARIES], entrypoint="ls", remove=True, network_disabled=True, labels={HARNESS_LABEL: "1"}
    )
    found = re.search(r"^kafka-clients-(\d+\.\d+\.\d+)[^/]*\.jar$", listed.decode(), re.MULTILINE)
    if found is None:
        raise HarnessError(
            f"{image} has no kafka-clients jar in {_LIBRARIES}, so it does not look like an image of Kafka",
            "use an image with the layout of apache/kafka, or --kafka VERSION",
        )
    return found[1]


def _provide(client: DockerClient, wanted: KafkaChoice, report: Report) -> dict[str, str | None]:
    """Pull or build every missing image. Return all images by name."""
    recipe_of = recipes(wanted.version)
    present = {name: _present(client, recipe, wanted) for name, recipe in recipe_of.items()}
    for name in _VARIABLES:
        if present[name] is None:
            present[name] = _pull_chosen(client, name, wanted, report)
        if present[name] is None:
            break  # no registry answers, so do not try the next image
    missing = [name for name in _VARIABLES if present[name] is None]
    if missing:
        report(f"no image registry answers: building {' and '.join(missing)} from packages (once, a minute)")
    if present["nettools"] is None and present["base"] is None and "kafka" not in missing:
        present["base"] = _SLIM_BASE if _pull(client, _SLIM_BASE, report) else None
    needs_base = present["kafka"] is None or present["nettools"] is None
    for name in ("base", "kafka", "toxiproxy", "nettools"):
        if present[name] is None and (name != "base" or needs_base):
            present[name] = build(client, recipe_of[name], present["base"] or "", report, wanted.version)
    return present


def _pull_chosen(client: DockerClient, name: str, wanted: KafkaChoice, report: Report) -> str | None:
    """Pull the image that the user chose, or else the official one.

    Return its name, or None if the official image cannot be pulled. Raise HarnessError if the user chose an
    image and it cannot be pulled.
    """
    chosen = wanted.chosen(name)
    image = chosen or wanted.official(name)
    if _pull(client, image, report):
        return image
    if chosen:
        raise HarnessError(
            f"the image {chosen} is not present and cannot be pulled",
            f"leave out --kafka-image and {_VARIABLES[name]}, also in .env: then the official image or a "
            "compatible build is used",
        )
    return None


def _engine() -> DockerClient:
    """Return a client of the Docker engine that the environment names, by default the local engine."""
    import docker
    from docker.errors import DockerException

    try:
        return docker.from_env(timeout=_ENGINE_SECONDS)
    except DockerException as error:
        raise MachineError(f"no Docker engine answers: {error}", ENGINE_HINT) from error


def _present(client: DockerClient, recipe: Recipe, wanted: KafkaChoice) -> str | None:
    """Return the name of the image that the Docker engine has for a recipe; None if it has none.

    If the user chose an image, only that image counts. Otherwise the function looks for the official image
    first, and then for an up-to-date image that was built on this machine.
    """
    from docker.errors import ImageNotFound

    chosen = wanted.chosen(recipe.name)
    if chosen and chosen != recipe.tag:
        candidates = [chosen]
    else:
        official = wanted.official(recipe.name)
        candidates = [official, recipe.tag] if official else [recipe.tag]
    for candidate in candidates:
        with suppress(ImageNotFound):
            image = client.images.get(candidate)
            if candidate != recipe.tag or image.labels.get(CONTENT_LABEL) == recipe.content:
                return candidate
    return None


def _pull(client: DockerClient, image: str, report: Report) -> bool:
    """Pull an image.

    Return whether this succeeded. Give up if the registry does not answer in REGISTRY_SECONDS.
    """
    import docker
    import requests
    from docker.errors import APIError

    registry = docker.from_env(timeout=REGISTRY_SECONDS)
    try:
        registry.images.get_registry_data(image)
        report(f"pulling {image}")
        client.images.pull(image)
    except (APIError, requests.RequestException):
        return False
    finally:
        registry.close()
    return True


def _chosen(variable: str) -> str:
    """Return the image that the user named with this variable, in the environment or in .env; empty if none.

    An image in .env that the harness itself built is ignored, because the user did not choose it.
    """
    env_file = _env_file()
    lines = _env_lines(env_file) if env_file else []
    in_file = next((line.partition("=")[2] for line in lines if line.startswith(f"{variable}=")), "")
    return os.environ.get(variable) or ("" if in_file.startswith(_OURS) else in_file)


def _write_env(env_file: Path, images: Images) -> None:
    """Write the names of the built images to the .env file, and keep the other lines of the file."""
    old = _env_lines(env_file)
    kept = [line for line in old if not re.match(rf"({'|'.join(_VARIABLES.values())})={_OURS}", line)]
    chosen = {line.split("=")[0] for line in kept}
    built = [
        f"{name}={image}"
        for name, image in images.environment.items()
        if image in images.built and name not in chosen
    ]
    if kept + built != old:
        env_file.write_text("".join(f"{line}\n" for line in kept + built))


def _env_file() -> Path | None:
    """Return the path of the checkout's .env file, which `docker compose` reads; None outside a checkout."""
    checkout = checkout_dir()
    return checkout / ".env" if checkout else None


def _env_lines(env_file: Path) -> list[str]:
    return env_file.read_text().splitlines() if env_file.exists() else []
