"""The command line `eos`. Data goes to stdout, everything else to stderr.

Commands import clients and other heavy packages only when they run, so that `eos --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys

import click

from harness import __version__
from harness.base.errors import ExitCode, HarnessError
from harness.cli import cluster_commands as cluster
from harness.cli import init_command
from harness.cli import inspect_commands as inspect
from harness.cli import run_commands as runs
from harness.cli.options import log

_EXIT_CODES = """
\b
Exit codes (the worst wins):
  0    valid, or done
  1    an anomaly was found: exactly-once was broken
  2    unknown: nothing was compared, a fault had no effect, or a time-out
  3    a limit was breached (recovery time)
  4    wrong usage, or a bad scenario file
  5    refused: it could do harm or mislead
  70   a bug of this tool
  130  interrupted, and healed
"""


@click.group(
    epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80}
)
@click.version_option(__version__, prog_name="eos")
def cli() -> None:
    """Find out whether Kafka's exactly-once holds on a real cluster.

    Without an external cluster, eos starts its own: 3 brokers, 3 controllers, and Toxiproxy between them.
    """


for command in (*cluster.COMMANDS, *runs.COMMANDS, *init_command.COMMANDS, *inspect.COMMANDS):
    cli.add_command(command)


def main() -> None:
    """Run the command line; turn every error into a message, a hint and an exit code."""
    try:
        # Do not call click's own main function. That function treats an EOFError as Ctrl-C, and after a
        # broken pipe it exits with code 1.
        with cli.make_context("eos", sys.argv[1:]) as context:
            cli.invoke(context)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        log("interrupted; `eos heal` undoes what is still injected")
        sys.exit(ExitCode.INTERRUPTED)
    except HarnessError as error:
        log(f"error: {error.message}\n\nhint: {error.hint}")
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001  # `_unforeseen` reports every other error
        sys.exit(_unforeseen(error))


def _unforeseen(error: Exception) -> ExitCode:
    """Report an unexpected error and return its exit code.

    The error is a broken pipe, a problem with a connection to a node, or a bug of the harness.
    """
    if isinstance(error, BrokenPipeError) and _output_is_closed():
        return ExitCode.UNKNOWN
    if problem := _connection_problem(error):
        log(f"error: {problem}: {error}\n\nhint: `eos status` shows the problems of the cluster")
        return ExitCode.UNKNOWN
    import traceback

    traceback.print_exception(error)
    log("\nerror: this is a bug of the harness")
    log("\nhint: report the lines above; `eos heal` heals the cluster")
    return ExitCode.BUG


def _connection_problem(error: Exception) -> str:
    """Describe an error of a connection to a node; return an empty string for any other error."""
    import socket
    import ssl

    from harness.kafka.errors import KafkaAnswerError

    if isinstance(error, KafkaAnswerError):
        return "a broker answered with an error"
    network = (ConnectionError, TimeoutError, EOFError, socket.gaierror, ssl.SSLError)
    unreachable = isinstance(error, OSError) and error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH)
    return "a node did not answer" if unreachable or isinstance(error, network) else ""


def _output_is_closed() -> bool:
    """Return whether stdout is the pipe that broke; if so, discard the rest of the output."""
    import select

    poll = select.poll()
    poll.register(sys.stdout, select.POLLOUT)
    if not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
