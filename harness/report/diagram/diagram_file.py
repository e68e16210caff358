"""`eos diagram RUN`: what really happened between clients and brokers, as Mermaid and as SVG.

A run directory holds frames.jsonl (the frame log), maybe logsteps.jsonl (what the logs tell), and the
clients' histories; nothing else is needed, and no cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.report.diagram.message_text import printable
from harness.report.diagram.operation_join import Operations
from harness.report.diagram.sequence import Message, Sequence, SequenceFilter, build_sequence, read_log
from harness.report.diagram.svg import svg
from harness.tap import coordinator_entries
from harness.tap.frame_lines import FrameLogOpened
from harness.tap.tap_client import LOG_NAME


class Diagram(NamedTuple):
    """A sequence diagram, and how much of the window it shows."""

    mermaid: str
    svg: str
    story: Sequence

    @property
    def text(self) -> str:
        """One line that says what is shown and what is not."""
        story = self.story
        parts = [f"{len(story.steps)} steps between {len(story.roles)} participants"]
        if story.left_out:
            parts.append(f"{story.left_out} later steps left out")
        if story.not_logged:
            parts.append(f"{story.not_logged} exchanges counted and not logged")
        return ", ".join(parts)


def draw(run: Path, wanted: SequenceFilter | None = None) -> Diagram:
    """The diagram of a run directory."""
    log = read_log(run / LOG_NAME)
    opening = next((line for line in log if isinstance(line, FrameLogOpened)), None)
    operations = Operations(run / "history", opening)
    story = build_sequence(log, coordinator_entries.read(run), operations, wanted or SequenceFilter())
    return Diagram(mermaid(story), svg(story), story)


def write(run: Path, wanted: SequenceFilter | None = None) -> tuple[Diagram, list[Path]]:
    """Draw the diagram of a run directory into it: diagram.mmd and diagram.svg."""
    drawn = draw(run, wanted)
    files = [run / "diagram.mmd", run / "diagram.svg"]
    for path, text in zip(files, (drawn.mermaid, drawn.svg), strict=True):
        path.write_text(text)
    return drawn, files


def mermaid(story: Sequence) -> str:
    """The text of a Mermaid sequence diagram."""
    idents = {name: f"p{number}" for number, name in enumerate(story.roles)}
    lines = ["sequenceDiagram"]
    for name, roles in story.roles.items():
        label = "<br/>".join(_escaped(part) for part in (name, *shortened(roles)))
        lines.append(f"    participant {idents[name]} as {label}")
    for step in story.steps:
        text = _escaped(f"{step.number}. {step.text}{_sign(step)}")
        lines.append(f"    {idents[step.source]}{_arrow(step)}{idents[step.target]}: {text}")
    return "\n".join(lines) + "\n"


def shortened(roles: list[str], most: int = 4) -> list[str]:
    """The first few roles of a participant, and how many more it has."""
    return roles if len(roles) <= most else [*roles[:most], f"and {len(roles) - most} more"]


def _arrow(step: Message) -> str:
    if step.lost:
        return "--x" if step.answer else "-x"
    return "-->>" if step.answer else "->>"


def _sign(step: Message) -> str:
    return " [refused]" if step.mark == "refused" else ""


def _escaped(text: str) -> str:
    """Mermaid takes ; for the end of a line and # for the begin of an entity."""
    signs = {"#": "#35;", ";": "#59;", "<": "#lt;", ">": "#gt;"}
    return "".join(signs.get(sign, sign) for sign in printable(text))
