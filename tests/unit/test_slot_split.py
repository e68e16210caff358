"""Spark reads inputs and outputs in one pass: the split gives what separate witnesses read."""

from __future__ import annotations

from harness.evidence.checkers.app_outputs import _sorted_words
from harness.evidence.observation import Meta, Window
from harness.evidence.observation_builder import Records, observe, observe_outputs
from harness.evidence.record import Identity
from harness.evidence.slot_split import split_slots
from harness.evidence.token import NO_TOKEN, SLOT_PRODUCERS

RUN = "r7k2m9qa"
TOPICS = ("in", "out", "copies")
RECORDS = {
    ("in", 0): [(1, 0, s) for s in range(600)] + [(1, 1, s) for s in range(5)],
    ("out", 0): [(1, 0, s) for s in range(300)] + [(1, 0, 7), (1, 0, 300), (1, 0, 299)],
    ("out", 1): [(1, 1, s) for s in (0, 2, 1, 1)] + [(NO_TOKEN, 0, 4)],
    ("copies", 0): [(1, 0, s // 2) for s in range(20)],
}


def records_of(*topics: str, slots: dict[str, int]) -> tuple[Meta, Records]:
    places = [place for place in RECORDS if place[0] in topics]
    meta = Meta(witness="w", kind="spark", complete=True)
    meta.windows = [
        Window(t, p, 0, len(RECORDS[t, p]), len(RECORDS[t, p]), len(RECORDS[t, p])) for t, p in places
    ]
    records = Records()
    for index, place in enumerate(places):
        first = slots.get(place[0], 0) * SLOT_PRODUCERS
        for offset, (producer, lane, seq) in enumerate(RECORDS[place]):
            records.add(index, offset, Identity(RUN, first + producer, lane, seq))
    return meta, records


def test_each_part_is_what_a_witness_of_its_topic_reads() -> None:
    slots = {"out": 1, "copies": 2}
    parts = split_slots(observe(*records_of(*TOPICS, slots=slots)), slots)
    assert list(parts) == ["", "out", "copies"]
    for topic, part in parts.items():
        meta, records = records_of(topic or "in", slots={})
        alone = observe_outputs(meta, records, counted=False) if topic else observe(meta, records)
        assert (_sorted_words(part) == _sorted_words(alone)).all()
        assert part.meta.windows == alone.meta.windows
        assert part.meta.records == alone.meta.records
        assert part.meta.purpose == ("outputs" if topic else "all")
        for name in ("late", "repeats", "clashes"):
            mine, other = getattr(part.meta, name), getattr(alone.meta, name)
            assert (mine.count, mine.by_producer) == (other.count, other.by_producer), (topic, name)
        assert part.meta.late.compared == alone.meta.late.compared
        if topic != "":
            assert [spot.topic for spot in part.meta.repeats.examples] == [topic] * len(
                part.meta.repeats.examples
            )
    assert parts["out"].meta.late.count > 0
    assert parts["copies"].meta.repeats.count == 10
