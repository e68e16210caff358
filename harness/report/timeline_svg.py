"""Drawing of a report's timeline as SVG: faults, records, latency, lag and in-sync replicas over time."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup, escape

from harness.report.timeline_data import Line, TimelineData

WIDTH: Final = 960
_LEFT, _RIGHT = 170, 20
_LANE, _PANEL, _GAP = 20, 90, 26
_NICE = (1, 2, 5)
_MOST_BARS: Final = 800  # if a run has more injections, a line of text states how many are not drawn


class _Figure:
    def __init__(self, series: TimelineData) -> None:
        self.series = series
        self.parts: list[str] = []
        self.y = 24.0

    def x(self, at: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * min(at, self.series.seconds) / self.series.seconds

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>')

    def rule(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>')


def draw_timeline(series: TimelineData) -> Markup:
    """Return the timeline of a run as SVG."""
    drawn = _Figure(series)
    _lanes(drawn)
    _panel(drawn, "records per second", series.records, ("committed", "aborted", "unknown"))
    _panel(drawn, "answer latency, ms", series.latency, ("median", "95 %", "slowest"))
    _panel(drawn, "not yet stable", {"offsets": series.lag}, ("offsets",), height=50)
    _panel(drawn, "minimum in-sync", {"replicas": series.isr}, ("replicas",), height=50, steps=True)
    bottom = drawn.y
    _axis(drawn, bottom)
    height = bottom + 34
    return Markup(  # noqa: S704 - `text` escapes what is not drawn here
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="the run over time" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(drawn.parts)}</svg>'
    )


def _lanes(drawn: _Figure) -> None:
    """Draw a row of bars for each fault and target.

    The lighter part of a bar is the time from the start of the injection until the fault took effect.
    """
    lanes: dict[str, list[str]] = {}
    for bar in drawn.series.bars[:_MOST_BARS]:
        end = drawn.series.seconds if bar.healed is None else bar.healed
        parts = [_bar(drawn, "fault soft", bar.begin, end), _bar(drawn, "fault", bar.bitten, end)]
        lanes.setdefault(bar.name, []).extend(parts)
    for at, fault in drawn.series.no_bites:
        missed = f'<text class="none" x="{drawn.x(at):.1f}" y="{{y}}" dy="10">no bite</text>'
        lanes.setdefault(fault, []).append(missed)
    for name, bars in lanes.items():
        drawn.text(_LEFT - 8, drawn.y + 10, _shortened(name), "label")
        drawn.parts += [bar.replace("{y}", f"{drawn.y:.1f}") for bar in bars]
        drawn.y += _LANE
    if (left := len(drawn.series.bars) - _MOST_BARS) > 0:
        drawn.text(_LEFT + 4, drawn.y + 10, f"and {left} more injections, in events.jsonl", "note")
        drawn.y += _LANE
    drawn.y += _GAP / 2


def _bar(drawn: _Figure, kind: str, begin: float, end: float) -> str:
    x, width = drawn.x(begin), max(1.0, drawn.x(end) - drawn.x(begin))
    return f'<rect class="{kind}" x="{x:.1f}" width="{width:.1f}" y="{{y}}" height="12"/>'


def _panel(
    drawn: _Figure,
    title: str,
    curves: dict[str, Line],
    order: tuple[str, ...],
    *,
    height: float = _PANEL,
    steps: bool = False,
) -> None:
    """Draw one small chart with its curves, its maximum value and a legend."""
    drawn_curves = {name: curves[name] for name in order if curves.get(name)}
    if not drawn_curves:
        drawn.text(_LEFT - 8, drawn.y + 12, title, "label")
        drawn.text(_LEFT + 4, drawn.y + 12, "not recorded", "note")
        drawn.y += _GAP
        return
    most = max(value for line in drawn_curves.values() for _, value in line)
    top = (most or 1.0) if steps else _nice(most)  # the axis of a step chart ends exactly at its maximum
    base = drawn.y + height
    drawn.text(_LEFT - 8, drawn.y + height / 2 + 4, title, "label")
    drawn.rule(_LEFT, base, WIDTH - _RIGHT, base, "axis")
    drawn.rule(_LEFT, drawn.y, WIDTH - _RIGHT, drawn.y, "grid")
    drawn.text(_LEFT - 8, drawn.y + 8, f"{top:g}", "label")
    drawn.text(_LEFT - 8, base, "0", "label")
    for number, (name, line) in enumerate(drawn_curves.items()):
        points = [(drawn.x(at), base - height * value / top) for at, value in line]
        drawn.parts.append(f'<path class="curve c{number}" d="{_path(points, steps=steps)}"/>')
        x = WIDTH - _RIGHT - 84 * (len(drawn_curves) - number)
        drawn.rule(x, drawn.y - 8, x + 16, drawn.y - 8, f"curve c{number}")
        drawn.text(x + 20, drawn.y - 4, name, "note")
    drawn.y = base + _GAP


def _axis(drawn: _Figure, bottom: float) -> None:
    """Draw the seconds below the charts, and a vertical line where each phase begins."""
    step = _nice(drawn.series.seconds / 10)
    at = 0.0
    while at <= drawn.series.seconds:
        drawn.text(drawn.x(at), bottom + 6, f"{at:g} s", "tick")
        at += step
    free = 0.0
    for at, name in drawn.series.phases:
        x = drawn.x(at)
        drawn.rule(x, 18, x, bottom - 8, "phase")
        if x >= free:  # if a phase name would overlap the previous one, draw only the phase's line
            drawn.text(x + 2, 12, name, "note")
            free = x + 7.5 * len(name) + 8


def _path(points: list[tuple[float, float]], *, steps: bool) -> str:
    first, *rest = points
    commands = [f"M{first[0]:.1f} {first[1]:.1f}"]
    commands += [f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}" for x, y in rest]
    return "".join(commands)


def _nice(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    scale = 1.0
    while scale * 10 <= value:
        scale *= 10
    while scale > value > 0:
        scale /= 10
    return next((scale * nice for nice in (*_NICE, 10) if scale * nice >= value), 1.0) or 1.0


def _shortened(name: str) -> str:
    name = name.replace("kafka-", "").replace("controller-", "c")
    return name if len(name) <= 28 else f"{name[:27]}…"
