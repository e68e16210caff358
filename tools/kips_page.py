"""Write docs/kips.md from observations on a cluster: `python -m tools.kips_page --state DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from harness.cli.options import state_of, state_option
from harness.cluster import lifecycle
from harness.cluster.cluster import Cluster
from harness.report.text_format import format_table
from harness.walkthroughs.kips import KIPS, Kip, Seen, observe
from tools.differences import stop_at_differences

FILE: Final = Path(__file__).parents[1] / "docs" / "kips.md"
_HEAD: Final = """# Proposals about exactly-once

For readers who look for a Kafka Improvement Proposal (KIP): what it changed, since when, and how to see it.

Written by `python -m tools.kips_page` from observations on Kafka {kafka} (back end {backend}).
`eos kip 890` repeats those of KIP-890 on the cluster that is up, and exits with 1 if an answer differs.
"""


def page(observed: dict[int, list[Seen]], kafka: str, backend: str) -> str:
    """Return the text of the page for the observations of all proposals."""
    lines = [_HEAD.format(kafka=kafka, backend=backend)]
    rows = [(f"[{k.number}](#kip-{k.number})", k.title, k.status, k.since) for k in KIPS.values()]
    lines += format_table(rows, ("KIP", "title", "status", "since"), markdown=True)
    for number, seen in observed.items():
        lines += ["", *_section(KIPS[number], seen)]
    return "\n".join(lines) + "\n"


def _section(kip: Kip, seen: list[Seen]) -> list[str]:
    rows = [(s.what, s.expected, s.observed) for s in seen]
    since = "" if kip.since == "-" else f", since {kip.since}"
    lines = [f"## KIP-{kip.number}", "", f"{kip.title}: {kip.status}{since}. {kip.changed}", ""]
    lines += format_table(rows, ("what", "expected", "observed"), markdown=True)
    if kip.more:
        lines += ["", "More: " + ", ".join(f"`{command}`" for command in kip.more) + "."]
    return lines


def observe_all(cluster: Cluster) -> dict[int, list[Seen]]:
    """Carry out every observation."""
    return {number: observe(kip, cluster) for number, kip in KIPS.items()}


@click.command()
@state_option
def main(state_path: Path | None) -> None:
    """Write docs/kips.md. If an answer differs from the expected one, write nothing and exit with 1."""
    cluster = lifecycle.attach(state_of(state_path))
    observed = observe_all(cluster)
    stop_at_differences((f"KIP-{number}", s) for number, seen in observed.items() for s in seen)
    FILE.write_text(page(observed, cluster.record.kafka, cluster.record.backend))
    click.echo(FILE)


if __name__ == "__main__":
    main()
