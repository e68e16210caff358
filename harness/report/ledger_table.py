"""The ledger of a run as a table: what the clients recorded for each topic, and what each witness read."""

from __future__ import annotations

from typing import Final, NamedTuple

from harness.evidence.checkers.run_figures import Figures, Read

_FATES: Final = ("committed", "aborted", "unknown")


class Table(NamedTuple):
    """The head and the rows of a table."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def ledger_table(figures: Figures, run_id: str = "") -> Table:
    """Return the numbers of records of each topic, by fate and by witness, with a row for their sums.

    The names of the topics are those of the scenario, without the run id.
    """
    witnesses = sorted({name for topic in figures.topics.values() for name in topic.read})
    head = (
        "topic",
        "acknowledged or committed",
        "aborted",
        "unknown",
        *(f"read by {_unbroken(w)}" for w in witnesses),
    )
    rows = []
    for name, topic in sorted(figures.topics.items()):
        fates = [getattr(topic, fate) for fate in _FATES]
        reads = [topic.read.get(witness, Read(0, 0)) for witness in witnesses]
        rows.append((name.removesuffix(f".{run_id}"), *map(_format, fates), *map(_cell, reads)))
    if len(figures.topics) > 1:
        topics = figures.topics.values()
        sums = [sum(getattr(topic, fate) for topic in topics) for fate in _FATES]
        reads = [
            Read(
                sum(topic.read[witness].records for topic in topics if witness in topic.read),
                sum(topic.read[witness].distinct for topic in topics if witness in topic.read),
            )
            for witness in witnesses
        ]
        rows.append(("all topics", *map(_format, sums), *map(_cell, reads)))
    return Table(head, rows)


def outputs_table(figures: Figures, run_id: str = "") -> Table:
    """Return what each witness read in the output topics of an application."""
    witnesses = sorted({name for reads in figures.outputs.values() for name in reads})
    head = ("output topic", *(f"outputs, read by {_unbroken(witness)}" for witness in witnesses))
    rows = [
        (
            topic.removesuffix(f".{run_id}"),
            *(_inputs_cell(reads.get(witness, Read(0, 0))) for witness in witnesses),
        )
        for topic, reads in sorted(figures.outputs.items())
    ]
    return Table(head, rows)


def _cell(read: Read) -> str:
    repeats = "" if read.records == read.distinct else f" ({_format(read.distinct)} distinct)"
    return _format(read.records) + repeats


def _inputs_cell(read: Read) -> str:
    return _format(read.records) + (f", of {_format(read.distinct)} inputs" if read.distinct else "")


def _format(number: int) -> str:
    return f"{number:,}"


def _unbroken(name: str) -> str:
    """Return a name in which no line can break."""
    return name.replace("-", "\N{NON-BREAKING HYPHEN}")
