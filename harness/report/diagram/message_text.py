"""One-line texts of requests and responses for a diagram."""

from __future__ import annotations

from harness.tap.decoded_fields import BatchFields, Facts, PartitionFields

_MOST = 3


def request_text(api: str, facts: Facts) -> str:
    """Describe a request in one line."""
    producer = f"pid {facts.producer_id} epoch {facts.epoch}" if (facts.producer_id or -1) >= 0 else ""
    if api == "Produce":
        return _joined(api, _listed([_batch(b) for b in facts.batches]), producer)
    if api == "EndTxn":
        return _joined(api, "COMMIT" if facts.committed else "ABORT", facts.transactional_id, producer)
    if api == "Fetch":
        return _joined(api, _places(facts.partitions, offsets=True), facts.isolation)
    if api == "FindCoordinator":
        return _joined(api, "of", facts.transactional_id or f"group {facts.group}")
    group = f"group {facts.group}" if facts.group else ""
    places = _places(facts.partitions, offsets=api == "TxnOffsetCommit")
    return _joined(api, facts.transactional_id, group, places, producer)


def response_text(api: str, facts: Facts) -> str:
    """Describe a response in one line: its errors or, if it has none, its content."""
    if refusals := facts.refusals:
        return ", ".join(refusals)
    if api == "Produce":
        offsets = [f"{p.topic}-{p.partition} at offset {p.offset}" for p in facts.partitions]
        return "written: " + _listed(offsets)
    if api == "Fetch":
        return _fetched(facts)
    if api == "FindCoordinator":
        return _listed([f"broker {c.broker}" for c in facts.coordinators])
    leaders = [f"{p.topic}-{p.partition} led by {p.leader}" for p in facts.partitions if p.leader is not None]
    producer = f"pid {facts.producer_id} epoch {facts.epoch}" if facts.producer_id is not None else ""
    return (f"{facts.apis} apis" if facts.apis else "") or _listed(leaders) or producer or "ok"


def printable(text: str) -> str:
    """Replace the characters that are not printable, because a client may send any bytes as an id."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def _fetched(facts: Facts) -> str:
    data = [b for b in facts.batches if b.marker is None]
    parts = [f"{_counted(b.count)} of {b.topic}-{b.partition} at {b.base_offset}" for b in data]
    parts += [
        f"marker {b.marker.upper()} of pid {b.producer_id} in {b.topic}-{b.partition} at {b.base_offset}"
        for b in facts.batches
        if b.marker
    ]
    parts += [
        f"aborted in {p.topic}-{p.partition}: pid {pid} from {first}"
        for p in facts.partitions
        for pid, first in p.aborted
    ]
    stable = [f"{p.topic}-{p.partition} LSO {p.last_stable_offset}" for p in facts.partitions]
    return "; ".join(filter(None, [_listed(parts), _listed(stable)]))


def _counted(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _batch(batch: BatchFields) -> str:
    text = f"{batch.topic}-{batch.partition}"
    if batch.base_sequence >= 0:
        text += f" seq {batch.base_sequence}-{batch.base_sequence + batch.count - 1}"
    else:
        text += f" {_counted(batch.count)}"
    return text + (" in transaction" if batch.transactional else "")


def _places(partitions: list[PartitionFields], *, offsets: bool) -> str:
    return _listed(
        [
            f"{p.topic}-{p.partition}" + (f" from {p.offset}" if offsets and p.offset is not None else "")
            for p in partitions
        ]
    )


def _listed(parts: list[str]) -> str:
    more = [f"and {len(parts) - _MOST} more"] if len(parts) > _MOST else []
    return ", ".join(parts[:_MOST] + more)


def _joined(*parts: str | None) -> str:
    return " ".join(part for part in parts if part)
