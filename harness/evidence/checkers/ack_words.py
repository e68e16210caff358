"""Acknowledged offsets, compared with the words of a witness. The checker of the property `offsets` uses it.

A word has only the lowest and the highest offset of its records, so most offsets inside it are unknown. Two
facts limit them further:

- If every record of a word was acknowledged, the word begins and ends at acknowledged offsets.
- If the lane is in order, a record has at least as many offsets below it in its word as records.

So the check finds wrong acknowledgements even if the only witness recorded no runs of consecutive records.
"""

from __future__ import annotations

import numpy as np

from harness.evidence.bit_words import EXAMPLES, WORD_SEQS, Bools, Ints, popcount, split_lane_key
from harness.evidence.checkers.distinct import RecordSet
from harness.evidence.checkers.model import Collector, Example, HistoryRef, OffsetRef
from harness.evidence.checkers.visibility_index import (
    QUARTER_SHIFT,
    VisibilityIndex,
    contract_of_lanes,
    lane_name,
)


def check_acks_in_words(index: VisibilityIndex, homes: Ints, out: Collector) -> None:
    """Find acknowledged offsets that the words of a witness exclude, although they are inside the word.

    `homes` is the number of each lane's partition.
    """
    acks, words = index.ledger.acks, index.words
    if not len(acks) or not len(words):
        return
    pieces = _pieces(acks)
    lane, first, last, offset, _, is_first, is_last = pieces.T
    key = (lane << (QUARTER_SHIFT - 2)) | (first // WORD_SEQS)
    keys = index.keys[::4] >> 2
    word = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    size = last - first + 1
    distinct = popcount(words["bits"]) == words["n"]
    usable = (keys[word] == key) & (index.count(lane, first, last) == size) & distinct[word]
    low, high = words["lo"][word], words["hi"][word]
    # The first and the last offset of each acknowledgement are compared with their words without this check.
    below, above = offset < low, offset + size - 1 > high
    wrong = usable & ((below & (is_first == 0)) | (above & (is_last == 0)))
    usable &= ~below & ~above
    for seq in (first, last):
        lowest, highest = index.offset_bounds(lane, seq)
        wrong |= usable & ((offset + seq - first < lowest) | (offset + seq - first > highest))
    wrong |= usable & _ends_differ(word, offset, size, index, usable)
    durable = contract_of_lanes(index.ledger, "no_loss")[lane]
    for permitted in (False, True):
        chosen = np.flatnonzero(wrong & (durable != permitted))
        examples = [_example(index, row) for row in pieces[chosen[:EXAMPLES], :5].tolist()]
        end = offset[chosen] + size[chosen] - 1
        found = RecordSet.of_intervals(homes[lane[chosen]], offset[chosen], end)
        out.add("inconsistent_offset", "offsets", found, examples, permitted=permitted, witness=index.name)


def _pieces(acks: Ints) -> Ints:
    """Split the acknowledgements at the edges of words; drop repeated ones.

    The columns are: lane, first, last, offset, line, and whether the piece is the first and the last one of
    its acknowledgement.
    """
    first_word, last_word = acks[:, 1] // WORD_SEQS, acks[:, 2] // WORD_SEQS
    parts = last_word - first_word + 1
    rows = np.repeat(acks, parts, axis=0)
    step = np.arange(len(rows)) - np.repeat(np.cumsum(parts) - parts, parts)
    word = np.repeat(first_word, parts) + step
    first = np.maximum(rows[:, 1], word * WORD_SEQS)
    last = np.minimum(rows[:, 2], (word + 1) * WORD_SEQS - 1)
    offset, ends = rows[:, 3] + first - rows[:, 1], (first == rows[:, 1], last == rows[:, 2])
    pieces = np.column_stack([rows[:, 0], first, last, offset, rows[:, 4], *ends])
    _, kept = np.unique(pieces[:, :4], axis=0, return_index=True)
    found: Ints = pieces[np.sort(kept)]
    return found


def _ends_differ(word: Ints, offset: Ints, size: Ints, index: VisibilityIndex, usable: Bools) -> Bools:
    """Return a mask of the pieces whose word was acknowledged as a whole, but with other ends."""
    words = index.words
    acknowledged = np.zeros(len(words), np.int64)
    low, high = np.full(len(words), np.iinfo(np.int64).max), np.full(len(words), -1, np.int64)
    np.add.at(acknowledged, word[usable], size[usable])
    np.minimum.at(low, word[usable], offset[usable])
    np.maximum.at(high, word[usable], (offset + size - 1)[usable])
    differ: Bools = (acknowledged == words["n"]) & ((low != words["lo"]) | (high != words["hi"]))
    return differ[word]


def _example(index: VisibilityIndex, piece: list[int]) -> Example:
    ledger, (lane, first, last, offset, line) = index.ledger, piece
    client = ledger.client_of(split_lane_key(int(ledger.lanes[lane]))[0])
    return Example(
        what=f"{lane_name(ledger, lane)}: sequences {first}-{last} were acknowledged from offset {offset} "
        "on, but the other records of their word leave no room for them there",
        weight=last - first + 1,
        witness=index.name,
        lines=[HistoryRef(client, line)],
        offsets=[
            OffsetRef(*ledger.places[lane], offset, offset + last - first),
            *index.offsets(lane, first, last),
        ],
    )
