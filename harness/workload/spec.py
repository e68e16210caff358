"""What one client process is told: a file that it reads, so that its command line stays short."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.errors import UsageError


class ClientSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An idempotent producer: where to, what, how fast, for how long."""

    run: str
    client: str
    number: int
    bootstrap: str
    topic: str
    partitions: int
    history: str
    seconds: float
    rate: int = 2000  # records a second, over all partitions
    burst: int = 50  # records of one history operation
    payload: int = 64  # bytes after the identity
    settings: dict[str, str | int | float | bool] = {}

    def save(self, path: Path) -> None:
        """Write it where the client reads it."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))


def load_spec(path: Path) -> ClientSpec:
    """Read a client's file, or say what is wrong with it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClientSpec)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{path}: {error}", "it is written by the harness and not meant to be edited"
        ) from error
