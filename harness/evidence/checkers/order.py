"""Order: records are in the order in which they were sent, as far as one clock or one producer shows it.

Within a partition, the records of each lane are in the order of their sequences. Records of different lanes
are in the order of real time; `real_time_order` checks them.

If a record can be read several times, only its first copy counts here, the one with the lowest offset. A
record is late if its first copy has a higher offset than the first copy of a record that was sent later.
Further copies count as duplicates, never as late. Records of other producers may lie in between, and so may
gaps (markers, aborted records). Kafka promises no order to a producer with several requests in flight and no
idempotence.
"""

from __future__ import annotations

from harness.evidence.checkers.model import Collector, Evidence, Example, Result, place
from harness.evidence.checkers.real_time_order import check_real_time


def check(evidence: Evidence) -> Result:
    """Report the late records that the read_committed witnesses found."""
    out = Collector("order", "neighbouring records")
    check_real_time(evidence, out)
    producers = evidence.ledger.producers
    for observation in evidence.committed_views():
        late, witness = observation.meta.late, observation.meta.witness
        out.compared += late.compared
        unpromised = {number for number, producer in producers.items() if not producer.contract.ordered}
        for permitted in (False, True):
            count = sum(n for producer, n in late.by_producer if (producer in unpromised) is permitted)
            examples = [
                Example(
                    what=f"producer {spot.producer} lane {spot.lane}: sequence {spot.seq} is at offset "
                    f"{spot.offset} of {spot.topic}-{spot.partition}, behind the later sequence "
                    f"{spot.other_seq} at offset {spot.other_offset}",
                    weight=abs(spot.other_seq - spot.seq),
                    witness=witness,
                    offsets=place(spot),
                )
                for spot in late.examples
                if (spot.producer in unpromised) is permitted
            ]
            out.add("reordered", "records", count, examples, permitted=permitted)
        if late.count and not late.by_producer:
            out.reasons.append(f"witness {witness} counted late records but named no producer")
    return out.result()
