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
from harness.cli import claims_command, init_command, kip_command, matrix_command, watch_command
from harness.cli import cluster_commands as cluster
from harness.cli import inspect_commands as inspect
from harness.cli import run_commands as runs
from harness.cli import scenario_commands as scenarios
from harness.cli import shell_commands as shell
from harness.cli.command_group import CommandGroup, usage_problem
from harness.cli.options import log

SECTIONS = (
    (
        "Run",
        (
            runs.demo,
            runs.run,
            watch_command.watch,
            init_command.init,
            scenarios.list_,
            scenarios.show,
            scenarios.new,
            scenarios.plan,
            runs.shrink,
        ),
    ),
    (
        "Look at runs",
        (
            inspect.check,
            inspect.report,
            inspect.index,
            inspect.results,
            inspect.metrics,
            inspect.compare,
            inspect.diagram,
            inspect.walkthrough,
            inspect.late,
        ),
    ),
    (
        "Cluster",
        (cluster.up, cluster.status, cluster.logs, cluster.tool, cluster.heal, cluster.down, cluster.doctor),
    ),
    (
        "Tools for any cluster",
        (
            inspect.verify,
            inspect.audit,
            inspect.hanging,
            inspect.facts,
            kip_command.kip,
            matrix_command.matrix,
            claims_command.claims,
            shell.completion,
            shell.version,
        ),
    ),
)

_EXIT_CODES = """
\b
Exit codes (the worst wins):
  0    valid, or done
  1    an anomaly was found: exactly-once was broken
  2    unknown: nothing was compared, a fault had no effect, or a time-out
  3    a limit was exceeded: the recovery time, or a phase had no progress
  4    wrong usage, or a bad scenario file
  5    refused: it could do harm or mislead; no cluster, or a part is missing
  70   a bug of this tool
  130  interrupted, and healed
"""


_CLOSED_PIPE = 141
"""Exit code if the reader of the output has closed it, as in `eos list | head -1`: that of other programs."""
_DENIED = "grant the right to this user, or name topics that it may read with --topic"
_WRONG_PLACES = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)
"""Numbers of the errors that mean: the user named a place that cannot be used."""


@click.group(
    cls=CommandGroup,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="eos")
def cli() -> None:
    """Find out whether Kafka's exactly-once holds on a real cluster.

    Without an external cluster, eos starts its own: 3 brokers, 3 controllers, and Toxiproxy between them.
    """


cli.add_sections(SECTIONS)


def main() -> None:
    """Run the command line; turn every error into a message, a hint and an exit code."""
    if shell.asked_to_complete():
        sys.exit(shell.complete(cli))
    try:
        # Do not call click's own main function. That function treats an EOFError as Ctrl-C, and after a
        # broken pipe it exits with code 1.
        with cli.make_context("eos", sys.argv[1:]) as context:
            cli.invoke(context)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except click.ClickException as error:
        _report(*usage_problem(error))
        sys.exit(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        injects = sys.argv[1:2] in (["run"], ["demo"], ["shrink"])
        log("interrupted" + ("; `eos heal` undoes what is still injected" if injects else ""))
        sys.exit(ExitCode.INTERRUPTED)
    except HarnessError as error:
        _report(error.message, error.hint)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001  # `_unforeseen` reports every other error
        sys.exit(_unforeseen(error))


def _unforeseen(error: Exception) -> int:
    """Report an unexpected error and return its exit code.

    The error is a broken pipe, a problem with a connection to a node, or a bug of the harness.
    """
    if isinstance(error, BrokenPipeError) and _output_is_closed():
        return _CLOSED_PIPE
    if isinstance(error, OSError) and (found := _place_problem(error)):
        code, problem, hint = found
        _report(problem, hint)
        return code
    if problem := _connection_problem(error):
        denied = getattr(error, "denied", False)
        hint = _DENIED if denied else "`eos status` shows the problems of the cluster"
        _report(f"{problem}: {error}", hint)
        return ExitCode.UNKNOWN
    import traceback

    traceback.print_exception(error)
    log("")
    _report("this is a bug of the harness", "report the lines above; `eos heal` heals the cluster")
    return ExitCode.BUG


def _report(problem: str, hint: str) -> None:
    """Write an error in the form that all errors have."""
    log(f"error: {problem}\n\nhint: {hint}")


def _place_problem(error: OSError) -> tuple[ExitCode, str, str] | None:
    """Return exit code, message and hint if a place cannot be read or written; None for another error."""
    reason = (error.strerror or "").lower()
    place = error.filename or "the output"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return ExitCode.UNKNOWN, f"{place} cannot be written: {reason}", "`eos doctor` shows the free space"
    if error.filename and error.errno in _WRONG_PLACES:
        return ExitCode.USAGE, f"{place} cannot be used: {reason}", "name another place, or change its rights"
    return None


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
