"""Order: within a partition, the records of one producer's lane stand in the order they were sent.

A record is late when its first appearance has a higher offset than that of a later one. Repeats are
judged as duplicates, and never as late. Interleaving with other producers is permitted, and gaps are
(markers, aborted records). A producer without idempotence and with several requests in flight is not
promised any order.
"""

from __future__ import annotations

from harness.evidence.checkers.model import Collector, Evidence, Example, Result, place


def check(evidence: Evidence) -> Result:
    """Judge the late records that every read_committed witness found."""
    out = Collector("order", "neighbouring records")
    producers = evidence.ledger.producers
    for observation in evidence.committed_views():
        late, witness = observation.meta.late, observation.meta.witness
        out.compared += late.compared
        unpromised = {number for number, one in producers.items() if not one.contract.ordered}
        for permitted in (False, True):
            count = sum(n for producer, n in late.by_producer if (producer in unpromised) is permitted)
            examples = [
                Example(
                    what=f"producer {spot.producer} lane {spot.lane}: sequence {spot.seq} stands at offset "
                    f"{spot.offset} of {spot.topic}-{spot.partition}, after sequence {spot.other_seq}",
                    weight=abs(spot.other_seq - spot.seq),
                    witness=witness,
                    offsets=place(spot),
                )
                for spot in late.examples
                if (spot.producer in unpromised) is permitted
            ]
            out.add("reordered", "records", count, examples, permitted=permitted)
        if late.count and not late.by_producer:
            out.reasons.append(f"witness {witness} counted late records and named no producer")
    return out.result()
