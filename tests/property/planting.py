"""Functions named after an anomaly. Each one plants this anomaly in a correct world of model.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.property.model import PARTITIONS, Entry, World


class Planting(NamedTuple):
    """A function that plants one anomaly, and the names of other anomalies that the plant may cause."""

    plant: Callable[[World, int], bool]
    companions: frozenset[str] = frozenset()


def _pick(world: World, place: int, *fates: str, shown: bool = True) -> tuple[str, int, Entry] | None:
    records = [one for one in world.entries() if one[2].token != "."]
    found = [one for one in records if one[2].fate in fates and one[2].shown is shown]
    return found[place % len(found)] if found else None


def lost(world: World, place: int) -> bool:
    """Hide one committed record."""
    found = _pick(world, place, "committed")
    if found:
        found[2].shown = False
    return bool(found)


def duplicate(world: World, place: int) -> bool:
    """Repeat one record at a later offset."""
    found = _pick(world, place, "committed", "unclear")
    if found:
        world.log[found[0]] += [Entry()] * (place % 3) + [Entry(found[2].token, shown=True)]
    return bool(found)


def phantom(world: World, place: int) -> bool:
    """Add a record that no client sent: of an unknown producer, beyond the end of a lane, or foreign."""
    tokens = ["p77:0", "?", "p9:5", "p9:300", "p9b:7" if place % 2 else "p9a:7"]
    token = tokens[place % len(tokens)]
    name = PARTITIONS[place % 2]
    at = place // 7 % (len(world.log[name]) + 1)
    hidden = [e for e in world.log[name][at:] if e.token == "." and not e.shown]
    if hidden:
        hidden[0].token, hidden[0].shown = token, True
    else:
        world.log[name].append(Entry(token, shown=True))
    return True


def reordered(world: World, place: int) -> bool:
    """Swap two records of one lane."""
    pairs = []
    for entries in world.log.values():
        for i, one in enumerate(entries):
            exact = one.shown and one.fate in ("committed", "unclear")
            later = [
                e for e in entries[i + 1 :] if e.producer == one.producer and e.shown and e.fate == one.fate
            ]
            if exact and later:
                pairs.append((one, later[place // 11 % len(later)]))
    if not pairs:
        return False
    one, two = pairs[place % len(pairs)]
    one.token, two.token = two.token, one.token
    return True


def aborted_read(world: World, place: int) -> bool:
    """Make one record of an aborted transaction readable."""
    found = _pick(world, place, "aborted", shown=False)
    if found:
        found[2].shown = True
    return bool(found)


def torn_transaction(world: World, place: int) -> bool:
    """In a transaction with several records and an unknown outcome, show or hide one record."""
    steps: dict[int, list[Entry]] = {}
    for _, _, entry in world.entries():
        if entry.fate == "unknown" and entry.token != ".":
            steps.setdefault(entry.step, []).append(entry)
    several = [entries for entries in steps.values() if len(entries) > 1]
    if not several:
        return False
    entries = several[place % len(several)]
    entry = entries[place // 3 % len(entries)]
    entry.shown = not entry.shown
    return True


def early_read(world: World, place: int) -> bool:
    """Let a reader receive a record of a committed transaction before its commit is requested."""
    found = [one for one in world.entries() if one[2].step in world.asked and one[2].shown]
    name, offset, entry = found[place % len(found)]
    world.history.insert(world.asked[entry.step], f"r2 read {name}@{offset} {entry.token}")
    return True


def inconsistent_offset(world: World, place: int) -> bool:
    """Let another reader report a different record at an offset."""
    shown = [one for one in world.entries() if one[2].shown]
    name, offset, entry = shown[place % len(shown)]
    others = [e.token for n, _, e in shown if n == name and e.token != entry.token]
    if not others:
        return False
    world.history.append(f"r2 read {name}@{offset} {others[place // 5 % len(others)]}")
    return True


def zombie_write(world: World, place: int) -> bool:
    """Let another client take over a transactional id just before the old client ends its transaction."""
    steps = {e.step: e.producer for _, _, e in world.entries() if e.step in world.asked and e.shown}
    step = sorted(steps)[place % len(steps)]
    old = steps[step]
    world.settings[f"p{old}"]["transactional_id"] = "shared"
    world.settings["p50"] = {"transactional_id": "shared"}
    world.history.insert(world.asked[step], "p50 init ok")
    world.history.insert(0, f"p{old} init ok")
    return True


def hanging_transaction(world: World, place: int) -> bool:
    """Keep a partition's last stable offset unchanged for longer than any transaction may be open."""
    name, lso = PARTITIONS[place % 2], place % 50
    world.history += [
        f"@{100 + i * (80 + place % 9)} look {name} {lso}/{lso + 1 + place % 7 + i}" for i in (0, 1)
    ]
    return True


def stalled(world: World, place: int) -> bool:
    """Let an operation take longer than the limit for stalled operations."""
    start = 100 + place % 50
    world.history.append(f"@{start}-{start + 61 + place % 40} p9 init ok")
    return True


def poll_skip(world: World, place: int) -> bool:
    """Let a reader begin at the first offset, and give it a later record at once."""
    later = [
        (name, offset, entry.token)
        for name, entries in world.log.items()
        for offset, entry in enumerate(entries)
        if entry.shown and any(e.shown for e in entries[:offset])
    ]
    if not later:
        return False
    name, offset, token = later[place % len(later)]
    world.history += [f"r3 assign {name}@0", f"r3 read {name}@{offset} {token}"]
    return True


def nonmonotonic_poll(world: World, place: int) -> bool:
    """Give a reader the same record in two polls."""
    shown = [one for one in world.entries() if one[2].shown]
    name, offset, entry = shown[place % len(shown)]
    world.history += [f"r3 read {name}@{offset} {entry.token}"] * 2
    return True


def unseen(world: World, place: int) -> bool:
    """Let a reader record that it read a partition to the end, although it got nothing."""
    names = [name for name, entries in world.log.items() if any(e.shown for e in entries)]
    name = names[place % len(names)]
    world.history += [f"r3 assign {name}@0", f"r3 caught-up {name}@{len(world.log[name])}"]
    return True


def _crossing(world: World, place: int, *, through: int) -> None:
    """Let producer 60 read a record of producer 61, and 61 a record of `through`, before it is written."""
    name, other = PARTITIONS if place % 2 else PARTITIONS[::-1]
    offsets = {60: len(world.log[name]), 61: len(world.log[other])}
    world.log[name].append(Entry("p60:0", shown=True))
    world.log[other].append(Entry("p61:0", shown=True))
    world.history += [f"p60 read {other}@{offsets[61]} p61:0", f"p60 commit ok {name}:0-0"]
    if through != 60:
        offsets[through] = len(world.log[name])
        world.log[name].append(Entry(f"p{through}:0", shown=True))
        world.history.append(f"p{through} commit ok {name}:0-0")
    world.history += [f"p61 read {name}@{offsets[through]} p{through}:0", f"p61 commit ok {other}:0-0"]
    world.settings["p61"] = {"clock": "other"}


def g1c(world: World, place: int) -> bool:
    """Let two transactions on two clocks read each other's records."""
    _crossing(world, place, through=60)
    return True


def g1c_realtime(world: World, place: int) -> bool:
    """Let a transaction read a record of a transaction that began after a reader of its own records."""
    _crossing(world, place, through=62)
    return True


def fate_mismatch(world: World, place: int) -> bool:
    """Replace the marker of a transaction with a known outcome by the opposite one."""
    markers = [e for _, _, e in world.entries() if e.token == "." and e.fate in ("committed", "aborted")]
    marker = markers[place % len(markers)]
    marker.raw = ("A" if marker.raw[0] == "C" else "C") + marker.raw[1:]
    world.with_raw_log = True
    return True


def wrong_transaction(world: World, place: int) -> bool:
    """Give a record of a transaction the number of another transaction."""
    labelled = [e for _, _, e in world.entries() if "~" in e.raw]
    entry = labelled[place % len(labelled)]
    number, intent = entry.raw.split("~")[1][:-1], entry.raw[-1]
    entry.raw = f"{entry.token}~{int(number) + 1 + place % 3}{intent}"
    world.with_raw_log = True
    return True


PLANTINGS = {
    "lost": Planting(lost, frozenset({"torn_transaction"})),
    "duplicate": Planting(duplicate),
    "phantom": Planting(phantom, frozenset({"reordered"})),
    "reordered": Planting(reordered, frozenset({"inconsistent_offset"})),
    "aborted_read": Planting(aborted_read, frozenset({"torn_transaction"})),
    "torn_transaction": Planting(torn_transaction),
    "early_read": Planting(early_read),
    # The raw log is a witness itself, so what its markers hide is lost, and what they show was aborted.
    "fate_mismatch": Planting(fate_mismatch, frozenset({"lost", "aborted_read", "torn_transaction"})),
    "wrong_transaction": Planting(wrong_transaction),
    "inconsistent_offset": Planting(inconsistent_offset),
    "zombie_write": Planting(zombie_write),
    "hanging_transaction": Planting(hanging_transaction),
    "stalled": Planting(stalled),
    "poll_skip": Planting(poll_skip),
    "nonmonotonic_poll": Planting(nonmonotonic_poll),
    "unseen": Planting(unseen),
    "g1c": Planting(g1c),
    "g1c_realtime": Planting(g1c_realtime),
}
