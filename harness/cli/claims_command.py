"""The command `eos claims`: claims about metrics, each with an observation on the cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.base.errors import ExitCode
from harness.cli.kip_command import seen_table
from harness.cli.options import json_option, log, print_json, state_of, state_option

if TYPE_CHECKING:
    from harness.walkthroughs.metric_claims import MetricClaim


@click.command(
    short_help="Observe which metrics move when exactly-once is at stake.",
    epilog="\b\nExample:  eos claims\n"
    "          eos claims duplicate\n"
    "          eos claims zombie lost --json\n"
    "          eos claims duplicate --state .eos",
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@json_option
@state_option
def claims(names: tuple[str, ...], *, as_json: bool, state_path: Path | None) -> None:
    """Observe which metrics of brokers and clients move when exactly-once is at stake.

    Without NAME, list the claims about metrics and what is true. With it, make one thing happen on the
    cluster, such as a batch that is sent twice, and compare the growth of the metrics with the expected one.
    This needs a cluster that eos has started, and a JDK. The exit code is 1 if a metric differs.
    """
    from harness.walkthroughs.metric_claims import CLAIMS, find_claim, observe

    if not names:
        if as_json:
            print_json([about(claim) for claim in CLAIMS.values()])
            return
        for claim in CLAIMS.values():
            click.echo(f"{claim.name}: {claim.claim}\n    {claim.answer}")
        return
    from harness.cluster import lifecycle

    wanted = [find_claim(name) for name in names]
    cluster = lifecycle.attach(state_of(state_path))
    same, found = True, []
    for claim, seen in observe(wanted, cluster, log):
        same = same and all(line.same for line in seen)
        if as_json:
            lines = [line._asdict() | {"same": line.same} for line in seen]
            found.append(about(claim) | {"kafka": cluster.record.kafka, "seen": lines})
        else:
            click.echo(
                "\n".join([f"claim:  {claim.claim}", f"answer: {claim.answer}", *seen_table(seen), ""])
            )
    if as_json:
        print_json(found)
    if not same:
        sys.exit(ExitCode.ANOMALY)


def about(claim: MetricClaim) -> dict[str, object]:
    """Return what is known about a claim without an observation."""
    return {"name": claim.name, "claim": claim.claim, "answer": claim.answer}
