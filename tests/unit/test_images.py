"""The user's choice of images, and the names written to .env for plain `docker compose`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.provision import images
from harness.provision.images import Images

BUILT = Images(
    "eos-harness/kafka:1", "eos-harness/toxiproxy:1", "n", ("eos-harness/kafka:1", "eos-harness/toxiproxy:1")
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "EOS_KAFKA_IMAGE=eos-harness/kafka:1\nEOS_TOXIPROXY_IMAGE=eos-harness/toxiproxy:1\n"),
        (
            "A=1\nEOS_KAFKA_IMAGE=eos-harness/kafka:0\n",
            "A=1\nEOS_KAFKA_IMAGE=eos-harness/kafka:1\nEOS_TOXIPROXY_IMAGE=eos-harness/toxiproxy:1\n",
        ),
        ("EOS_KAFKA_IMAGE=mine:2\n", "EOS_KAFKA_IMAGE=mine:2\nEOS_TOXIPROXY_IMAGE=eos-harness/toxiproxy:1\n"),
    ],
    ids=["none", "ours is replaced", "the user's stays"],
)
def test_built_images_are_added_to_the_users_env_file(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / ".env"
    file.write_text(before)

    images._write_env(file, BUILT)

    assert file.read_text() == after


def test_the_users_choice_is_read_from_the_environment_or_the_env_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "checkout_dir", lambda: tmp_path)
    monkeypatch.delenv("EOS_KAFKA_IMAGE", raising=False)
    file = tmp_path / ".env"

    assert images._chosen("EOS_KAFKA_IMAGE") == ""
    file.write_text("EOS_KAFKA_IMAGE=eos-harness/kafka:1\n")
    assert images._chosen("EOS_KAFKA_IMAGE") == ""
    file.write_text("EOS_KAFKA_IMAGE=mine:2\n")
    assert images._chosen("EOS_KAFKA_IMAGE") == "mine:2"
    monkeypatch.setenv("EOS_KAFKA_IMAGE", "mine:3")
    assert images._chosen("EOS_KAFKA_IMAGE") == "mine:3"
