"""Options that several commands share, and the function that writes their progress lines."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from harness.base.texts import shorten
from harness.provision.paths import checkout_dir

if TYPE_CHECKING:
    from harness.cluster.state_directory import State
    from harness.kafka.security import Security

RUNS: Final = Path("runs")
"""Default folder for run directories."""
MOST: Final = 10**9
"""Largest whole number that an option accepts. No option needs a larger one."""


class WholeNumber(click.ParamType[int]):
    """Type of an option whose value is a whole number from `least` up."""

    name = "whole number"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; fail if the text is not one, or not an allowed one."""
        text = str(value)
        if not text.isascii() or not text.removeprefix("-").isdigit():
            self.fail(f"{shorten(text)!r} is not a whole number", param, ctx)
        if len(text) > len(str(MOST)) or not self._least <= int(text) <= MOST:
            self.fail(f"{shorten(text)} is not between {self._least} and {MOST}", param, ctx)
        return int(text)


def log(line: str) -> None:
    """Write a progress line to stderr."""
    click.echo(line, err=True)


def print_json(value: object) -> None:
    """Write one JSON document to stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str)).decode())


verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Print more: versions, measurements, logs."
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def complete_scenario(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the shipped scenarios whose names begin as typed, for a shell."""
    from harness.scenario.find import shipped

    return [path.stem for path in shipped() if path.stem.startswith(incomplete)]


def complete_run(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the run directories whose paths begin as typed, for a shell."""
    paths = [str(file.parent) for file in RUNS.glob("*/*/run.json")]
    return sorted(path for path in paths if path.startswith(incomplete))


def state_option(function: click.decorators.FC) -> click.decorators.FC:
    """Add the option --state to a command."""
    default = ".eos of the checkout" if checkout_dir() else "~/.local/state/eos-harness/eos"
    return click.option(
        "--state",
        "state_path",
        type=click.Path(path_type=Path),
        metavar="DIR",
        envvar="EOS_STATE",
        help=f"State directory.  [default: {default}]",
    )(function)


def backend_option(function: click.decorators.FC) -> click.decorators.FC:
    """Add the option --backend to a command."""
    return click.option(
        "--backend",
        type=click.Choice(["auto", "compose", "process"]),
        metavar="NAME",
        default="auto",
        show_default=True,
        help="auto, compose or process.",
    )(function)


def kafka_options(function: click.decorators.FC) -> click.decorators.FC:
    """Add the options --kafka and --kafka-image to a command."""
    from harness.provision.kafka_versions import DEFAULT_KAFKA

    text = f"Version of Kafka.  [default: {DEFAULT_KAFKA}]"
    version = click.option("--kafka", metavar="VERSION", default="", help=text)
    image = click.option("--kafka-image", metavar="IMAGE", default="", help="Image of Kafka, for containers.")
    return version(image(function))


file_option = click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Cluster file of an external cluster.",
)


@dataclasses.dataclass(frozen=True)
class Connection:
    """Options of a command that reads any cluster: its addresses and its security settings."""

    bootstrap: str | None
    bootstrap_server: str | None
    command_config: Path | None
    cluster_file: Path | None

    @property
    def is_named(self) -> bool:
        """Whether any of the options was given."""
        return any((self.bootstrap, self.bootstrap_server, self.command_config, self.cluster_file))

    def settings(self) -> tuple[str, Security]:
        """Return the bootstrap servers and the security settings; raise UsageError if they are unclear."""
        from harness.base.errors import UsageError
        from harness.kafka.security import PLAINTEXT

        if self.cluster_file is not None:
            from harness.cluster.external.cluster_file_loader import load_cluster_file
            from harness.faults.catalogue import external_faults

            if self.command_config is not None:
                raise UsageError("--cluster and --command-config exclude each other", "use one of them")
            file = load_cluster_file(self.cluster_file, external_faults(), only_reads=True)
            file.security.check_passwords()
            named = self.bootstrap or self.bootstrap_server
            return named or ",".join(file.cluster.bootstrap), file.security
        bootstrap, security = self.bootstrap or self.bootstrap_server, PLAINTEXT
        if self.command_config is not None:
            from harness.kafka.client_properties import bootstrap_in, read_security

            security = read_security(self.command_config)
            bootstrap = bootstrap or bootstrap_in(self.command_config)
        if not bootstrap:
            raise UsageError(
                "--bootstrap is missing",
                "name brokers, such as --bootstrap localhost:9092, or --cluster FILE",
            )
        return bootstrap, security

    def tool_options(self, bootstrap: str) -> str:
        """Return the options with which Kafka's own tools reach the same cluster."""
        if self.command_config is not None:
            return f"--bootstrap-server {bootstrap} --command-config {shlex.quote(str(self.command_config))}"
        login = " --command-config client.properties" if self.cluster_file is not None else ""
        return f"--bootstrap-server {bootstrap}{login}"


def bundle(
    name: str, kind: type[Any], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds options to a command.

    The command receives the values of these options in its parameter `name`, as an object of the dataclass
    `kind`.
    """
    names = [field.name for field in dataclasses.fields(kind)]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def bundled(**values: Any) -> Any:
            fields = {field: values.pop(field) for field in names}
            return function(**values, **{name: kind(**fields)})

        for option in reversed(options):
            bundled = option(bundled)
        return bundled

    return decorate


connection_options = bundle(
    "connection",
    Connection,
    click.option("--bootstrap", metavar="HOST:PORT", help="Brokers of the cluster."),
    click.option("--bootstrap-server", hidden=True, help="The name that Kafka's own tools use."),
    click.option(
        "--command-config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Kafka's client.properties: TLS and SASL.",
    ),
    file_option,
)


def state_of(path: Path | None) -> State:
    """Return the state directory at `path`, or the default one. Raise UsageError if it cannot be one."""
    from harness.base.errors import UsageError
    from harness.cluster.state_directory import State, default_state

    state = State(path or default_state())
    check_folder(state.path, "--state")
    hint = "name a new folder, or one that `eos up` made"
    if state.path.is_dir() and not (state.path / "lock").exists() and any(state.path.iterdir()):
        raise UsageError(f"--state {state.path} is not a state directory: it contains other files", hint)
    return state


def check_folder(path: Path, option: str) -> None:
    """Raise UsageError if a path that an option names cannot be a folder."""
    from harness.base.errors import UsageError

    hint = "name a folder, existing or new"
    shown = shorten(str(path))
    try:
        existing = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    except OSError as error:
        raise UsageError(f"{option} {shown}: {(error.strerror or '').lower()}", hint) from error
    if not existing.is_dir():
        raise UsageError(f"{option} {shown}: {existing} is a file", hint)


def check_output_file(file: Path, option: str) -> None:
    """Raise UsageError if a file that an option names cannot be written. Its folder must exist."""
    from harness.base.errors import UsageError

    if not file.absolute().parent.is_dir():
        raise UsageError(
            f"{option} {file} is in a folder that does not exist",
            "make the folder, or name a file in another one",
        )
    check_writable(file.parent, option)


def check_writable(folder: Path, option: str) -> None:
    """Raise UsageError if files cannot be written into a folder that an option names.

    A folder that does not exist yet is made and removed again.
    """
    import tempfile

    from harness.base.errors import UsageError

    check_folder(folder, option)
    made = [place for place in (folder.absolute(), *folder.absolute().parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(
            f"{option} {folder} is not writable: {reason}", "name a folder in which you may write"
        ) from error
    finally:
        for place in made:
            with contextlib.suppress(OSError):
                place.rmdir()


def parse_seconds(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Parse a duration with its unit, such as 60s. This is a callback of click."""
    from harness.base.errors import UsageError
    from harness.base.units import Duration

    try:
        return None if text is None else float(Duration.parse(text))
    except ValueError as error:
        raise UsageError(f"{option.opts[0]}: {error}", f"write {Duration.allowed}") from error
