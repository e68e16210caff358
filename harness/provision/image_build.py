"""Builds of container images from packages, jars and binaries.

The images of Kafka and Toxiproxy are built only if no registry answers.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.errors import HarnessError
from harness.base.ports import free_ports
from harness.base.waits import wait_until
from harness.kafka.connection import answers
from harness.kafka.training_workload import run_training_workload
from harness.provision.archives import unpack
from harness.provision.jars import ensure_jars, pinned_jars
from harness.provision.kafka_versions import DEFAULT_KAFKA
from harness.provision.paths import cache_dir, resource, scratch_dir
from harness.provision.toxiproxy_binary import TOXIPROXY_VERSION, ensure_toxiproxy

if TYPE_CHECKING:
    from docker import DockerClient

CONTENT_LABEL = "eos-harness.content"
HARNESS_LABEL = "eos-harness"
_TRAINING_LABEL = "eos-harness.training"
_SUITE = "bookworm"
_PACKAGES = "ca-certificates,openjdk-17-jre-headless,bash,iptables"
# Documents and translations are left out of the image. Manual pages stay, because the Java package fails to
# install if their folders are missing.
_LEAVE_OUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
_LIBRARIES = "/opt/kafka/libs"

Report = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """Description of an image that can be built: its name and tag.

    `content` is the fingerprint of everything that goes into the image. An image with another fingerprint is
    out of date.
    """

    name: str
    tag: str
    content: str


def base_recipe(more: str = "") -> Recipe:
    """Return the recipe of the base image. `more` lists additional packages, each preceded by a comma."""
    tag = f"eos-harness/base{'-'.join(more.split(',')[:2])}:{_SUITE}"
    return Recipe("base", tag, fingerprint(_SUITE, _PACKAGES + more, *_LEAVE_OUT))


def recipes(kafka: str = DEFAULT_KAFKA) -> dict[str, Recipe]:
    """Return the recipes of the images that can be built, by name.

    The image `base` is the base of kafka and nettools. `kafka` is the version of Kafka.
    """
    base = base_recipe().content
    jars = " ".join(jar.sha256 for jar in pinned_jars(kafka) if jar.jar_set == "kafka")
    return {
        recipe.name: recipe
        for recipe in (
            base_recipe(),
            Recipe("kafka", f"eos-harness/kafka:{kafka}", fingerprint(base, jars, context_text("kafka"))),
            Recipe(
                "toxiproxy",
                f"eos-harness/toxiproxy:{TOXIPROXY_VERSION}",
                fingerprint(TOXIPROXY_VERSION, context_text("toxiproxy")),
            ),
            Recipe("nettools", "eos-harness/nettools:1", fingerprint(context_text("nettools"))),
        )
    }


def build(client: DockerClient, recipe: Recipe, base: str, report: Report, kafka: str = DEFAULT_KAFKA) -> str:
    """Build the image of a recipe and return its tag.

    `base` is the tag of the base image. The images kafka and nettools are built on it. `kafka` is the version
    of Kafka.
    """
    from docker.errors import APIError

    started = time.monotonic()
    before = _image_id(client, recipe.tag)
    with scratch_dir("image") as scratch:
        context = scratch / "context"
        if recipe.name == "base":
            build_base(client, recipe)
        elif recipe.name == "kafka":
            _build_kafka(client, recipe, base, context, ensure_jars(report, "kafka", kafka=kafka))
        else:
            copy_context(recipe.name, context)
            if recipe.name == "toxiproxy":
                binaries = ensure_toxiproxy(report)
                shutil.copy(binaries.server, context / "server")
                shutil.copy(binaries.cli, context / "cli")
            docker_build(client, context, recipe.tag, recipe, {"BASE": base} if base else {})
    if before and before != _image_id(client, recipe.tag):
        with suppress(APIError):  # the removal fails while a container uses the old image
            client.images.remove(before)
    report(f"built {recipe.tag} in {time.monotonic() - started:.0f} s")
    return recipe.tag


def _image_id(client: DockerClient, tag: str) -> str | None:
    """Return the id of the image with this tag; None if there is no such image."""
    from docker.errors import ImageNotFound

    with suppress(ImageNotFound):
        return str(client.images.get(tag).id)
    return None


def build_base(client: DockerClient, recipe: Recipe, more: str = "") -> None:
    """Build a small Debian image with a Java runtime and the additional packages in `more`."""
    tool = shutil.which("mmdebstrap")
    if not tool:
        raise HarnessError(
            "no image registry answers, and mmdebstrap, which builds images from packages, is missing",
            "run `apt-get install -y mmdebstrap`, or give the Docker engine access to a registry",
        )
    command = [
        tool,
        "--quiet",
        "--variant=essential",
        f"--include={_PACKAGES}{more}",
        *(f"--dpkgopt=path-exclude={path}" for path in _LEAVE_OUT),
        _SUITE,
        "-",
    ]
    with tempfile.TemporaryFile(dir=cache_dir()) as archive, tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(command, stdout=archive, stderr=errors, timeout=900, check=False)
        if done.returncode != 0:
            errors.seek(0)
            raise HarnessError(
                f"mmdebstrap failed: {errors.read()[-500:]}",
                "check that this machine reaches its Debian mirror, and run the command again",
            )
        archive.seek(0)
        repository, tag = recipe.tag.split(":")
        labels = [f'LABEL {CONTENT_LABEL}="{recipe.content}"', f'LABEL {HARNESS_LABEL}="1"']
        client.api.import_image_from_data(archive, repository=repository, tag=tag, changes=labels)


def _build_kafka(client: DockerClient, recipe: Recipe, base: str, context: Path, jars: list[Path]) -> None:
    """Build the Kafka image from Kafka's jars, and add the class-data archive of the JVM.

    A Kafka node writes this archive in a training run, in which it serves a small workload.
    """
    copy_context("kafka", context)
    (context / "libs").mkdir()
    for jar in jars:
        shutil.copy2(jar, context / "libs")  # copy2 keeps the mtime, which the class-data archive records
    # List the jars in the order of the lock file. A class-data archive is valid for one order only, and the
    # order of a wildcard varies.
    (context / "class-path").write_text(":".join(f"{_LIBRARIES}/{jar.name}" for jar in jars))
    untrained = f"{recipe.tag}-untrained"
    docker_build(client, context, untrained, recipe, {"BASE": base})
    trained = context.with_name("trained")
    trained.mkdir()
    shutil.copy(context / "Dockerfile.trained", trained / "Dockerfile")
    _train(client, untrained, trained)
    docker_build(client, trained, recipe.tag, recipe, {"BASE": untrained})
    client.images.remove(untrained, noprune=True)


def _train(client: DockerClient, image: str, target: Path) -> None:
    """Make a class-data archive for the JVM, and store it in the folder `target`.

    The function starts a container from `image`. The container runs one Kafka node, which serves a small
    workload. The node's JVM writes the archive at its exit. The function then copies the archive out of the
    container.
    """
    for left in client.containers.list(all=True, filters={"label": _TRAINING_LABEL}):
        left.remove(force=True, v=True)  # a container of an earlier build, which was killed
    (port,) = free_ports(1)
    node = client.containers.run(
        image,
        detach=True,
        labels={HARNESS_LABEL: "1", _TRAINING_LABEL: "1"},
        ports={"9092/tcp": ("127.0.0.1", port)},
        environment=_training_environment(port),
    )
    try:
        wait_until(lambda: answers("127.0.0.1", port), 90, "the training node to answer")
        run_training_workload(port)
        node.stop(timeout=120)  # sends SIGTERM, because the JVM writes the archive only at a clean exit
        chunks, _ = node.get_archive("/opt/kafka/kafka.jsa")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            unpack(archive, target, "kafka.jsa")
    finally:
        node.remove(force=True, v=True)


def _training_environment(port: int) -> dict[str, str]:
    """Return the environment variables of a training node, which is both broker and controller.

    Clients of the node reach it on `port`.
    """
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
        "KAFKA_LISTENERS": "INTERNAL://:9091,CLIENT://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"INTERNAL://localhost:9091,CLIENT://127.0.0.1:{port}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": ",".join(
            f"{listener}:PLAINTEXT" for listener in ("INTERNAL", "CLIENT", "CONTROLLER")
        ),
        "KAFKA_LOG_DIRS": "/tmp/training",  # noqa: S108  # inside the container
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_HEAP_OPTS": "-Xmx320m",
        "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "KAFKA_OPTS": "-XX:ArchiveClassesAtExit=/opt/kafka/kafka.jsa",
    }


def docker_build(
    client: DockerClient, context: Path, tag: str, recipe: Recipe, arguments: dict[str, str]
) -> None:
    """Build an image from a complete build context, and label it with the fingerprint of its recipe."""
    from docker.errors import BuildError

    labels = {CONTENT_LABEL: recipe.content, HARNESS_LABEL: "1"}
    try:
        client.images.build(
            path=str(context), tag=tag, buildargs=arguments, labels=labels, rm=True, forcerm=True
        )
    except BuildError as error:
        last = "".join(str(line.get("stream", "")) for line in error.build_log)[-500:]
        raise HarnessError(
            f"building {tag} failed: {error}: {last}", "check the network and run the command again"
        ) from error


def copy_context(name: str, target: Path) -> None:
    """Copy the Docker build context `name` from the package data to `target`.

    A wheel does not keep executable bits. Therefore each file that starts with `#!` is made executable.
    """
    shutil.copytree(_context(name), target)
    for path in target.iterdir():
        path.chmod(0o755 if _is_script(path) else 0o644)


def context_text(name: str) -> str:
    """Return the content of all files of the Docker build context `name` as one text, for the fingerprint."""
    return "\n".join(
        f"{path.name} {_is_script(path)}\n{path.read_text()}" for path in sorted(_context(name).iterdir())
    )


def _context(name: str) -> Path:
    return resource(f"docker/{name}")


def _is_script(path: Path) -> bool:
    return path.read_bytes().startswith(b"#!")


def fingerprint(*parts: str) -> str:
    """Return the first 16 hex digits of a SHA-256 hash over the given texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
