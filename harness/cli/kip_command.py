"""The command `eos kip`: proposals about exactly-once, each with an observation on the cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.base.errors import ExitCode
from harness.cli.options import WholeNumber, json_option, print_json, state_of, state_option

if TYPE_CHECKING:
    from harness.walkthroughs.kips import Kip, Seen


@click.command(
    short_help="Observe a proposal (KIP) on the cluster.",
    epilog="\b\nExample:  eos kip\n"
    "          eos kip 890\n"
    "          eos kip 890 --json\n"
    "          eos kip 447 --state .eos",
)
@click.argument("number", type=WholeNumber(1), required=False)
@json_option
@state_option
def kip(number: int | None, *, as_json: bool, state_path: Path | None) -> None:
    """Observe a Kafka Improvement Proposal about exactly-once on the cluster.

    Without NUMBER, list the proposals. With it, print what the proposal changed and since which release, send
    a few requests to the cluster, and compare each answer with the expected one. The exit code is 1 if an
    answer differs.
    """
    from harness.walkthroughs.kips import KIPS, find_kip, observe

    if number is None:
        if as_json:
            print_json([about(proposal) for proposal in KIPS.values()])
            return
        for k in KIPS.values():
            click.echo(f"KIP-{k.number}: {k.title} ({_status(k)})\n    {k.changed}")
        return
    from harness.cluster import lifecycle

    proposal = find_kip(number)
    cluster = lifecycle.attach(state_of(state_path))
    seen = observe(proposal, cluster)
    if as_json:
        found = [line._asdict() | {"same": line.same} for line in seen]
        print_json(about(proposal) | {"kafka": cluster.record.kafka, "seen": found})
    else:
        click.echo("\n".join(_lines(proposal, seen, cluster.record.kafka)))
    if not all(line.same for line in seen):
        sys.exit(ExitCode.ANOMALY)


def about(proposal: Kip) -> dict[str, object]:
    """Return what is known about a proposal without an observation."""
    fields = proposal._asdict()
    return {key: fields[key] for key in ("number", "title", "status", "since", "changed", "more")}


def _status(proposal: Kip) -> str:
    return proposal.status if proposal.since == "-" else f"{proposal.status}, since {proposal.since}"


def seen_table(seen: Sequence[Seen]) -> list[str]:
    """Return the lines of a table that compares observed values with the expected ones."""
    from harness.report.text_format import format_table

    rows = [(s.what, s.expected, s.observed, "" if s.same else "different") for s in seen]
    return format_table(rows, ("what", "expected", "observed", ""))


def _lines(proposal: Kip, seen: list[Seen], kafka: str) -> list[str]:
    """Return the text that describes a proposal and its observation."""
    return [
        f"KIP-{proposal.number}: {proposal.title}",
        f"{_status(proposal)}: {proposal.changed}",
        f"observed on Kafka {kafka}:",
        *seen_table(seen),
        *(f"more: {command}" for command in proposal.more),
    ]
