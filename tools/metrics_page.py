"""Write docs/metrics.md from observations on a cluster: `python -m tools.metrics_page --state DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from harness.cli.options import log, state_of, state_option
from harness.cluster import lifecycle
from harness.cluster.broker_metrics import METRICS
from harness.report.text_format import format_table
from harness.walkthroughs.kips import Seen
from harness.walkthroughs.metric_claims import CLAIMS, MetricClaim, observe
from tools.differences import stop_at_differences

FILE: Final = Path(__file__).parents[1] / "docs" / "metrics.md"
_HEAD: Final = """# Metrics and exactly-once

For operators who watch Kafka's metrics: which of them move when exactly-once is at stake, and which do
not.

Written by `python -m tools.metrics_page` from observations on Kafka {kafka} (back end {backend}).
`eos claims` lists the claims, and `eos claims duplicate` repeats the observation of one on the cluster that
is up. It exits with 1 if a metric differs. Each observation makes one thing happen, and reads what really
happened from the log of the leader. Errors after which every client tries again, such as
NOT_LEADER_OR_FOLLOWER, occur in healthy clusters and are left out.

## Metrics of a run

```sh
eos run leader-kills --set verify.metrics=true
```

With `verify.metrics = true`, a run reads the metrics of its brokers every two seconds, and the statistics
of its clients' library. `report.html` draws them below the other curves, with the faults behind them, and
`eos metrics` has the errors as `eos_run_broker_errors_total`. The samples are in `metrics.jsonl`, with only
the values that changed. The brokers need no settings: a Java program attaches to their JVMs (this needs
a JDK). A run on an external cluster refuses the key.

{cost}

| name | MBean | attribute |
| --- | --- | --- |
| `error REQUEST NAME` | `kafka.network:type=RequestMetrics,name=ErrorsPerSec,...` | `Count` |
| `requests REQUEST` | the same with `error=NONE`, for Produce and EndTxn | `Count` |
"""
_COST: Final = """\
The program is off by default: it needs a JDK and a moment to start. A run reports its cost; in
`eos run leader-kills --seed 7 --duration 12s --set verify.metrics=true`, nine samples took 1.1 s of processor
time, with the start of the program.

That run was valid, and its brokers counted 682 errors CONCURRENT_TRANSACTIONS for AddPartitionsToTxn, and
one OUT_OF_ORDER_SEQUENCE_NUMBER for Produce. Clients repeat such requests, so the sum of ErrorsPerSec is no
alert."""
_CLIENTS: Final = """
Clients of a run have `request retries`, `request timeouts` and `broken connections`, which librdkafka
counts over all brokers, and `acknowledged`, `committed` and `aborted`. Times of sends and commits are in
each report, also without this key.
"""


def page(observed: list[tuple[MetricClaim, list[Seen]]], kafka: str, backend: str) -> str:
    """Return the text of the page for the observations of all claims."""
    lines = [_HEAD.format(kafka=kafka, backend=backend, cost=_COST).rstrip()]
    lines += [f"| `{metric.name}` | `{metric.mbean}` | `{metric.attribute}` |" for metric in METRICS]
    lines += [_CLIENTS, "## Claims", ""]
    rows = [(f"[{claim.name}](#{claim.name})", claim.claim, claim.answer) for claim, _ in observed]
    lines += format_table(rows, ("observation", "claim", "what is true"), markdown=True)
    for claim, seen in observed:
        lines += ["", f"## {claim.name}", "", f"Claim: {claim.claim} {claim.answer}", ""]
        lines += [f"What happens: {_sentence(claim)}", ""]
        rows = [(s.what, s.expected, s.observed) for s in seen]
        lines += format_table(rows, ("what", "expected", "observed"), markdown=True)
    return "\n".join(lines) + "\n"


def _sentence(claim: MetricClaim) -> str:
    """Return what an observation makes happen: the first line of its docstring."""
    return (claim.observe.__doc__ or "").splitlines()[0]


@click.command()
@state_option
def main(state_path: Path | None) -> None:
    """Write docs/metrics.md. If a metric differs from the expected one, write nothing and exit with 1."""
    cluster = lifecycle.attach(state_of(state_path))
    observed = list(observe(list(CLAIMS.values()), cluster, log))
    stop_at_differences((claim.name, s) for claim, seen in observed for s in seen)
    FILE.write_text(page(observed, cluster.record.kafka, cluster.record.backend))
    click.echo(FILE)


if __name__ == "__main__":
    main()
