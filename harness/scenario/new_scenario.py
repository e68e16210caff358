"""The text of a new scenario file, and the names that a scenario may have."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Allowed names of scenarios. A name is also the name of a folder for run directories."""

_TEXT: Final = """\
[scenario]
name = "NAME"
shows = "Clients lose connections and a broker dies, and every record is still written exactly once."
expect = "valid"  # or "invalid", with: anomalies = ["duplicate"]

[plan]
steady = "5s"  # load without faults, first
duration = "30s"  # load with faults
gap = ["2s", "5s"]  # pause between two faults

[[workload]]  # clients of one kind: idempotent, transactional, pipeline or reader
kind = "idempotent"
topic = "clicks"
rate = 500  # records per second of each client
# settings = { "linger.ms" = 20 }  # of librdkafka; lz4, snappy, zstd need a package

[[workload]]
kind = "transactional"
clients = 2
topic = "orders"
rate = 200
transaction = [10, 100]  # fewest and most records of a transaction
abort_share = 0.1

[[workload]]  # reads orders, and writes one invoice for each order, in transactions
kind = "pipeline"
source = "orders"
topic = "invoices"
group = "billing"

[[fault]]  # lasts for the whole plan
fault = "jitter"
target = "all"
latency = "50ms"
jitter = "40ms"
throughout = true

[[fault]]  # has a fixed time
fault = "kill"
target = "leader_of(orders, 0)"
at = "5s"
lasts = "3s"

[[fault]]  # is drawn from the seed, again and again
fault = "sever"
target = "one"
lasts = ["200ms", "1s"]

[limits]
recovery = "60s"  # longest time until every client works again
"""


def text_of(name: str) -> str:
    """Return the text of a new scenario file with this name."""
    return _TEXT.replace("NAME", name, 1)
