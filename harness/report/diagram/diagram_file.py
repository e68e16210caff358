"""`eos diagram RUN`: draw the messages between clients and brokers of a run, as Mermaid and as SVG.

The input is a run directory. It contains frames.jsonl (the frame log) and the histories of the clients. It
may also contain logsteps.jsonl (entries of the brokers' logs). No cluster is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.report.diagram.message_text import printable
from harness.report.diagram.operation_join import Operations
from harness.report.diagram.sequence import Message, Sequence, SequenceFilter, build_sequence, read_log
from harness.report.diagram.svg import draw_svg
from harness.report.fault_spans import start_of
from harness.report.timeline_data import read_events
from harness.tap import coordinator_entries
from harness.tap.frame_lines import FrameLogOpened
from harness.tap.tap_client import LOG_NAME


class Diagram(NamedTuple):
    """A sequence diagram as Mermaid text and as SVG, with the sequence of messages that it shows."""

    mermaid: str
    svg: str
    sequence: Sequence

    @property
    def text(self) -> str:
        """One-line summary: the size of the diagram in messages and participants, and what it leaves out."""
        sequence = self.sequence
        parts = [f"{len(sequence.messages)} steps between {len(sequence.roles)} participants"]
        if sequence.left_out:
            parts.append(f"{sequence.left_out} later steps left out")
        if sequence.not_logged:
            parts.append(f"{sequence.not_logged} exchanges counted and not logged")
        return ", ".join(parts)


def draw(run: Path, chosen: SequenceFilter | None = None) -> Diagram:
    """Draw the diagram of a run from the files in its directory. `chosen` selects the part to show."""
    log = read_log(run / LOG_NAME)
    opening = next((line for line in log if isinstance(line, FrameLogOpened)), None)
    operations = Operations(run / "history", opening)
    chosen = chosen or SequenceFilter()
    began = start_of(read_events(run))
    # The events of the run and the frames have the same monotonic clock.
    wall = opening.wall - opening.mono + began if opening and 0 < began <= opening.mono else None
    sequence = build_sequence(log, coordinator_entries.read(run), operations, chosen, wall)
    return Diagram(draw_mermaid(sequence), draw_svg(sequence), sequence)


def write(run: Path, chosen: SequenceFilter | None = None) -> tuple[Diagram, list[Path]]:
    """Write diagram.mmd and diagram.svg into a run directory; return the diagram and the two files."""
    drawn = draw(run, chosen)
    files = [run / "diagram.mmd", run / "diagram.svg"]
    for path, text in zip(files, (drawn.mermaid, drawn.svg), strict=True):
        path.write_text(text)
    return drawn, files


def draw_mermaid(sequence: Sequence) -> str:
    """Return the text of a Mermaid sequence diagram."""
    idents = {name: f"p{number}" for number, name in enumerate(sequence.roles)}
    lines = ["sequenceDiagram"]
    for name, roles in sequence.roles.items():
        label = "<br/>".join(_escaped(part) for part in (name, *shortened(roles)))
        lines.append(f"    participant {idents[name]} as {label}")
    for message in sequence.messages:
        refused = " [refused]" if message.mark == "refused" else ""
        text = _escaped(f"{message.number}. {message.text}{refused}")
        lines.append(f"    {idents[message.source]}{_arrow(message)}{idents[message.target]}: {text}")
    return "\n".join(lines) + "\n"


def shortened(roles: list[str], most: int = 4) -> list[str]:
    """Return the first `most` roles of a participant and, if there are more, a text such as `and 3 more`."""
    return roles if len(roles) <= most else [*roles[:most], f"and {len(roles) - most} more"]


def _arrow(message: Message) -> str:
    if message.lost:
        return "--x" if message.answer else "-x"
    return "-->>" if message.answer else "->>"


def _escaped(text: str) -> str:
    """Escape text for Mermaid, in which ; ends a line and # starts an entity."""
    signs = {"#": "#35;", ";": "#59;", "<": "#lt;", ">": "#gt;"}
    return "".join(signs.get(sign, sign) for sign in printable(text))
