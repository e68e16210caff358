"""Drawing of a sequence diagram as one SVG file, without scripts, fonts or other external resources."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from harness.report.diagram.message_text import printable
from harness.report.diagram.sequence import Message, Sequence

_COLUMN = 250
_ROW = 34
_MARGIN = 20
_CHARACTER = 6.2
_LINE = 15
_MARK_TEXTS = {
    "retry": "retry",
    "refused": "refused",
    "fault": "touched by a fault",
    "log": "from a broker's log, to the millisecond",
}
_COLOURS = {
    "plain": ("#1f2937", "#e5e7eb"),
    "retry": ("#b45309", "#fbbf24"),
    "refused": ("#b91c1c", "#f87171"),
    "fault": ("#7c3aed", "#c4b5fd"),
    "log": ("#047857", "#6ee7b7"),
    "quiet": ("#d1d5db", "#4b5563"),
}
"""Each colour has two variants: for a white and for a black background. Every element has the first variant
as an attribute, because some viewers ignore style sheets.
"""

_DARK = "".join(
    f".sequence line.{name},.sequence path.{name}{{stroke:{dark}}}"
    f".sequence text.{name},.sequence tspan.{name}{{fill:{dark}}}"
    for name, (_, dark) in _COLOURS.items()
)
_STYLE = f"@media screen and (prefers-color-scheme:dark){{.sequence{{background:#111827}}{_DARK}}}"
"""Rules for dark backgrounds. They apply to this drawing only, because a report contains others too."""


def draw_svg(sequence: Sequence) -> str:
    """Return a sequence diagram as an SVG document."""
    middle = {name: _MARGIN + _COLUMN * (i + 0.5) for i, name in enumerate(sequence.roles)}
    most_roles = max((len(roles) for roles in sequence.roles.values()), default=0)
    top = _MARGIN + 24 + _LINE * min(most_roles, 5)
    height = top + _ROW * (len(sequence.messages) + 1) + 3 * _MARGIN
    longest = max((_right_end(message, middle) for message in sequence.messages), default=0.0)
    width = max(2 * _MARGIN + _COLUMN * max(len(sequence.roles), 1), longest + _MARGIN)
    parts = [
        f'<svg class="sequence" xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" font-family="system-ui,sans-serif" font-size="12" '
        'stroke-width="1.4" fill="none">',
        "<title>Messages between clients and brokers</title>",
        f"<style>{_STYLE}</style>",
    ]
    for name, roles in sequence.roles.items():
        parts += _participant(name, roles, middle[name], top, height - 2 * _MARGIN)
    for row, message in enumerate(sequence.messages, 1):
        parts += _arrow(message, middle, top + row * _ROW)
    parts.append(_legend(sequence, height - _MARGIN))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _pen(name: str) -> str:
    return f'class="{name}" stroke="{_COLOURS[name][0]}"'


def _ink(name: str) -> str:
    return f'class="{name}" fill="{_COLOURS[name][0]}"'


def _participant(name: str, roles: list[str], x: float, top: float, bottom: float) -> list[str]:
    shown = roles if len(roles) <= 5 else [*roles[:4], f"and {len(roles) - 4} more"]
    parts = [
        f'<text {_ink("plain")} font-weight="600" x="{x}" y="{_MARGIN}" text-anchor="middle">'
        f"{escape(printable(name))}</text>",
        f'<line {_pen("quiet")} x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>',
    ]
    for i, role in enumerate(shown, 1):
        at = f'x="{x}" y="{_MARGIN + _LINE * i}" text-anchor="middle"'
        parts.append(f'<text {_ink("plain")} font-size="11" {at}>{escape(printable(role))}</text>')
    return parts


def _arrow(message: Message, middle: dict[str, float], y: float) -> list[str]:
    start, end = middle[message.source], middle[message.target]
    colour = message.mark or "plain"
    dash = ' stroke-dasharray="5 4"' if message.answer else ""
    label = printable(f"{message.number}. {message.text}")
    if message.source == message.target:
        path = f"M{start} {y - 6}h26v12h-22"
        tip, anchor, at = start + 4, "start", start + 34
        parts = [f'<path d="{path}" {_pen(colour)}{dash}/>']
        head = _head(tip, y + 6, -1, colour, lost=message.lost)
        text_y = y + 4
    else:
        towards = 1 if end > start else -1
        parts = [f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" {_pen(colour)}{dash}/>']
        head = _head(end, y, towards, colour, lost=message.lost)
        anchor, at, text_y = "start", min(start, end) + 8, y - 5
    title = quoteattr(label)
    parts += [
        head,
        f'<text x="{at}" y="{text_y}" text-anchor="{anchor}" {_ink(colour)} aria-label={title}>'
        f"{escape(label)}</text>",
    ]
    return parts


def _head(x: float, y: float, towards: int, colour: str, *, lost: bool) -> str:
    if lost:
        return f'<path d="M{x - 5} {y - 5}l10 10m0-10l-10 10" {_pen(colour)}/>'
    return f'<path d="M{x - 7 * towards} {y - 4}L{x} {y}L{x - 7 * towards} {y + 4}" {_pen(colour)}/>'


def _right_end(message: Message, middle: dict[str, float]) -> float:
    left = min(middle[message.source], middle[message.target])
    return left + 40 + _CHARACTER * (len(message.text) + 5)


def _legend(sequence: Sequence, y: float) -> str:
    used = [mark for mark in _MARK_TEXTS if any(message.mark == mark for message in sequence.messages)]
    spans = [f"<tspan {_ink(mark)}>{_MARK_TEXTS[mark]}</tspan>" for mark in used]
    if sequence.left_out:
        spans.append(f"<tspan>{sequence.left_out} later steps left out</tspan>")
    if sequence.not_logged:
        spans.append(f"<tspan>{sequence.not_logged} exchanges counted and not logged</tspan>")
    return f'<text {_ink("plain")} x="{_MARGIN}" y="{y}">{" · ".join(spans)}</text>'
