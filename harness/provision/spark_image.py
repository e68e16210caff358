"""Build of the container image for the compose profile `spark` (command `make spark-image`).

A Spark worker needs PySpark, numpy and pyarrow in the same versions as the Spark driver. It also needs the
driver's minor version of Python. No registry has such an image. This module therefore copies the packages
from the current virtual environment onto a base image with Java and Python.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.base.errors import HarnessError
from harness.provision.image_build import (
    CONTENT_LABEL,
    Recipe,
    base_recipe,
    build_base,
    context_text,
    copy_context,
    docker_build,
    fingerprint,
)
from harness.provision.paths import cache_lock, scratch_dir

if TYPE_CHECKING:
    from docker import DockerClient

PACKAGES: Final = ("pyspark", "py4j", "numpy", "numpy.libs", "pyarrow")
PYTHON: Final = ",python3,procps"
DEBIAN_PYTHON: Final = (3, 11)
"""Version of Python in the base image.

A driver with another minor version of Python needs another base image.
"""

_ENGINE_SECONDS = 900


def spark_recipe() -> Recipe:
    """Return the recipe of the Spark image."""
    names = ("pyspark", "py4j", "numpy", "pyarrow")
    versions = [f"{name} {distribution(name).version}" for name in names]
    python = "{}.{}".format(*sys.version_info)
    parts = (base_recipe(PYTHON).content, python, context_text("spark"), *versions)
    return Recipe("spark", f"eos-harness/spark:{distribution('pyspark').version}", fingerprint(*parts))


def ensure_spark_image(report: Callable[[str], None]) -> str:
    """Build the Spark image if it is missing or out of date. Return its tag."""
    import docker

    client = docker.from_env(timeout=_ENGINE_SECONDS)
    recipe = spark_recipe()
    with cache_lock("images.lock"):
        if not _up_to_date(client, recipe):
            base = _base(client, report)
            report(f"building {recipe.tag} from {base} and this virtual environment (a minute or two)")
            with scratch_dir("image") as scratch:
                context = scratch / "context"
                copy_context("spark", context)
                _copy_packages(context / "packages")
                docker_build(client, context, recipe.tag, recipe, {"BASE": base})
    return recipe.tag


def _up_to_date(client: DockerClient, recipe: Recipe) -> bool:
    from docker.errors import ImageNotFound

    with suppress(ImageNotFound):
        return bool(client.images.get(recipe.tag).labels.get(CONTENT_LABEL) == recipe.content)
    return False


def _base(client: DockerClient, report: Callable[[str], None]) -> str:
    """Return the base image that the user named, or else build one with Java and Python from packages."""
    chosen = os.environ.get("EOS_SPARK_BASE")
    if chosen:
        return chosen
    if sys.version_info[:2] != DEBIAN_PYTHON:
        raise HarnessError(
            "workers need Python {}.{} like the driver, and the base image has {}.{}".format(
                *sys.version_info[:2], *DEBIAN_PYTHON
            ),
            "set EOS_SPARK_BASE to an image with Java 17 and that Python, or use make PYTHON=python3.11",
        )
    recipe = base_recipe(PYTHON)
    if not _up_to_date(client, recipe):
        report(f"building {recipe.tag} from packages")
        build_base(client, recipe, PYTHON)
    return recipe.tag


def _copy_packages(target: Path) -> None:
    """Copy the Python packages that Spark workers import.

    Use hard links if possible, because PySpark takes up half a gigabyte.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    site = Path(spec.origin).parent.parent
    for name in PACKAGES:
        if (site / name).exists():
            shutil.copytree(
                site / name,
                target / name,
                copy_function=_link,
                ignore=shutil.ignore_patterns("__pycache__", "tests", "include", "*.pyi", "examples"),
            )


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


if __name__ == "__main__":
    print(ensure_spark_image(print))
