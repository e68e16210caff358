"""Order: records are in the order in which they were sent, as far as one clock or one producer shows it.

Within a partition, the records of each lane are in the order of their sequences. Records of different lanes
are in the order of real time; `real_time_order` checks them.

If a record can be read several times, only its first copy counts here, the one with the lowest offset. A
record is late if its first copy has a higher offset than the first copy of a record that was sent later.
Further copies count as duplicates, never as late. Records of other producers may lie in between, and so may
gaps (markers, aborted records). Kafka promises no order to a producer with several requests in flight and no
idempotence.

A witness names only a few late records. So if several witnesses found some, the count is the number of
different late records that they name, or the largest number that one of them counted, whichever is larger.
"""

from __future__ import annotations

from collections.abc import Hashable

from harness.evidence.checkers.distinct import Tally
from harness.evidence.checkers.model import Collector, Evidence, Example, Result, place
from harness.evidence.checkers.real_time_order import check_real_time
from harness.evidence.observation import Spot


def check(evidence: Evidence) -> Result:
    """Report the late records that the read_committed witnesses found."""
    out = Collector("order", "neighbouring records")
    check_real_time(evidence, out)
    producers = evidence.ledger.producers
    for observation in evidence.committed_views():
        late, witness = observation.meta.late, observation.meta.witness
        out.compared = max(out.compared, late.compared)
        unpromised = {number for number, producer in producers.items() if not producer.contract.ordered}
        for permitted in (False, True):
            # Records of a producer that no history declares are phantoms, or a history is missing.
            by_producer: dict[Hashable, int] = {
                number: n
                for number, n in late.by_producer
                if number in producers and (number in unpromised) is permitted
            }
            spots = [spot for spot in late.examples if spot.producer in by_producer]
            named: dict[Hashable, frozenset[Hashable]] = {
                number: frozenset(
                    (spot.topic, spot.partition, spot.offset) for spot in spots if spot.producer == number
                )
                for number in by_producer
            }
            examples = [_example(spot, witness) for spot in spots]
            found = Tally(by_producer, named)
            out.add("reordered", "records", found, examples, permitted=permitted, witness=witness)
        if late.count and not late.by_producer:
            out.reasons.append(f"witness {witness} counted late records but named no producer")
    return out.result()


def _example(spot: Spot, witness: str) -> Example:
    return Example(
        what=f"producer {spot.producer} lane {spot.lane}: sequence {spot.seq} is at offset {spot.offset} of "
        f"{spot.topic}-{spot.partition}, behind the later sequence {spot.other_seq} at offset "
        f"{spot.other_offset}",
        weight=abs(spot.other_seq - spot.seq),
        witness=witness,
        offsets=place(spot),
    )
