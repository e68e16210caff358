"""Commands for the shell: the versions of the parts, and completion of commands, scenarios and runs."""

from __future__ import annotations

import os
import platform
from typing import Final

import click

from harness import __version__
from harness.cli.options import json_option, print_json

_VARIABLE: Final = "_EOS_COMPLETE"
"""Environment variable with which a shell asks for completions. The library defines its form."""
_INSTALL: Final = {
    "bash": 'eval "$(eos completion bash)"',
    "zsh": 'eval "$(eos completion zsh)"',
    "fish": "eos completion fish | source",
}


@click.command(
    short_help="Print the code that makes a shell complete commands and names.",
    epilog="\b\nExample:  eos completion bash\n          eos completion zsh > ~/.eos-completion",
)
@click.argument("shell", type=click.Choice(list(_INSTALL)))
def completion(shell: str) -> None:
    """Print the code that makes a shell complete commands, options, scenarios and runs.

    To use it in the current shell, type `eval "$(eos completion bash)"`, or the same with zsh. For fish, type
    `eos completion fish | source`. To use it in every shell, add the line to the shell's start-up file.
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(root, {}, "eos", _VARIABLE).source())


@click.command(
    short_help="Print the versions of eos and of its parts.",
    epilog="\b\nExample:  eos version\n"
    "          eos version --json\n"
    "          eos version > versions.txt\n"
    "          eos version | grep kafka",
)
@json_option
def version(*, as_json: bool) -> None:
    """Print the versions of eos, Python, Kafka, Toxiproxy and the client libraries."""
    from importlib.metadata import version as installed

    from harness.provision.kafka_versions import DEFAULT_KAFKA
    from harness.provision.toxiproxy_binary import TOXIPROXY_VERSION

    found = {"eos": __version__, "python": platform.python_version()}
    found |= {"kafka": DEFAULT_KAFKA, "toxiproxy": TOXIPROXY_VERSION}
    found |= {name: installed(name) for name in ("confluent-kafka", "pyspark")}
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(f"{name:16} {value}" for name, value in found.items()))


def asked_to_complete() -> bool:
    """Return whether a shell started this process to complete a command line."""
    return _VARIABLE in os.environ


def complete(root: click.Command) -> int:
    """Print the completions that the shell asked for, and return the exit code."""
    from click.shell_completion import shell_complete

    return shell_complete(root, {}, "eos", _VARIABLE, os.environ[_VARIABLE])
