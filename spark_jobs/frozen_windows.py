"""Windows of a streaming verification: the offsets that it must reach, and those that it has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.base.partition_id import PartitionId
from harness.evidence.observation import Window


def read_windows(
    known: Sequence[Window], frozen: Sequence[Window], ends: Mapping[PartitionId, int]
) -> list[Window]:
    """Return the windows that the stream has read: from the start in `known` to the offset in `ends`.

    The last stable offset and the high watermark are those in `frozen`. The stream may have read more records
    than the frozen end offset covers, because a client continued to write; the last stable offset was then at
    least the offset in `ends`. But if the stream had read beyond the last stable offset before this offset
    was frozen, the log went back, and the two offsets stay as they are (see frozen_ends_of).
    """
    frozen_by_place = {(window.topic, window.partition): window for window in frozen}
    windows = []
    for window in known:
        place = (window.topic, window.partition)
        bounds, end = frozen_by_place[place], ends[place]
        went_back = bounds.read_to > bounds.lso
        lso, hw = (bounds.lso, bounds.hw) if went_back else (max(bounds.lso, end), max(bounds.hw, end))
        windows.append(Window(*place, window.start, lso, hw, end))
    return windows


def frozen_ends_of(windows: Sequence[Window], read_before: Mapping[PartitionId, int]) -> list[Window]:
    """Return the windows with the end offsets that the stream must reach.

    `read_before` contains the offsets that the stream had read before the end offsets were requested. A last
    stable offset never decreases, so a lower one in `windows` means that the log went back. `read_to` is then
    the offset that the stream had read, which is above `lso`.
    """
    return [
        Window(*place, w.start, w.lso, w.hw, max(w.read_to, read_before.get(place, 0)))
        for w in windows
        for place in [(w.topic, w.partition)]
    ]
