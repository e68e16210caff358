"""Drawing of a report's timeline as SVG: rates, latencies, lag and in-sync replicas, with faults behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from harness.report.fault_spans import FaultSpan
from harness.report.metric_curves import MetricCurves
from harness.report.timeline_data import Line, TimelineData

WIDTH: Final = 960
_LEFT, _RIGHT = 200, 16
_LANE, _PANEL, _SMALL, _GAP = 18, 84, 48, 28
_TOP: Final = 34.0
_LABEL_LENGTH: Final = 33
_TICKS: Final = (1, 2, 5, 10)
_TOPS: Final = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_GAP_SLICES: Final = 2.5
"""Number of slices of time without an answer after which a curve of latencies is interrupted."""
_COLOURS: Final = 6
"""Number of colours for kinds of faults. Further kinds share them."""
_MOST_BARS: Final = 600  # if a run has more injections, a line of text states how many are not drawn


class Mark(NamedTuple):
    """An example of an anomaly in the timeline: its time, its name, and the anchor of its evidence."""

    at: float
    name: str
    anchor: str


class _Figure:
    def __init__(self, series: TimelineData) -> None:
        self.series = series
        self.parts: list[str] = []
        self.y = _TOP

    def x(self, at: float) -> float:
        inside = min(max(at, 0.0), self.series.seconds)
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * inside / self.series.seconds

    def width(self, seconds: float) -> float:
        return (WIDTH - _LEFT - _RIGHT) * seconds / self.series.seconds

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>')

    def rule(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>')


def draw_timeline(
    series: TimelineData,
    faults: Sequence[FaultSpan] = (),
    marks: Sequence[Mark] = (),
    metrics: MetricCurves | None = None,
) -> Markup:
    """Return the timeline of a run as SVG. The faults are bars at the top and bands behind every chart."""
    drawn = _Figure(series)
    kinds = {name: number % _COLOURS for number, name in enumerate(dict.fromkeys(f.fault for f in faults))}
    _mark_lane(drawn, marks)
    _fault_lanes(drawn, faults, kinds)
    top = drawn.y
    percentiles = ("p50", "p95", "max")
    _panel(drawn, "records per second", series.records, ("committed", "aborted", "unknown"))
    gap = _GAP_SLICES * series.slice_s
    _panel(drawn, "send to acknowledgement, ms", series.sends, percentiles, gap=gap)
    _panel(drawn, "commit request to answer, ms", series.commits, percentiles, gap=gap)
    _panel(drawn, "lag of consumer groups, offsets", series.lags, tuple(series.lags), height=_SMALL)
    _panel(drawn, "offsets that Spark has not read", {"": series.spark}, ("",), height=_SMALL)
    _panel(drawn, "operations in flight", {"": series.in_flight}, ("",), height=_SMALL)
    _panel(drawn, "offsets not yet stable", {"": series.unstable}, ("",), height=_SMALL)
    _panel(drawn, "smallest in-sync set", {"": series.isr}, ("",), height=_SMALL, steps=True)
    if metrics is not None:
        _metric_panels(drawn, metrics)
    if drawn.y == top:
        drawn.text(_LEFT + 4, drawn.y, "no rates were recorded", "note")
        drawn.y += _GAP
    bottom = drawn.y - _GAP
    charts, drawn.parts = drawn.parts, []
    _bands(drawn, faults, kinds, top - 4, bottom)
    for mark in marks:
        drawn.rule(drawn.x(mark.at), _TOP, drawn.x(mark.at), bottom, "mark")
    drawn.parts += charts
    _axis(drawn, bottom)
    return Markup(  # noqa: S704 - `text` escapes what is not drawn here
        f'<svg viewBox="0 0 {WIDTH} {bottom + 26:.0f}" role="img" aria-label="the run over time" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(drawn.parts)}</svg>'
    )


def _metric_panels(drawn: _Figure, metrics: MetricCurves) -> None:
    """Draw the metrics of brokers and clients, if the run sampled them."""
    _panel(drawn, "errors of brokers per second", metrics.errors, tuple(metrics.errors), height=_SMALL)
    _panel(drawn, "clients, requests per second", metrics.retries, tuple(metrics.retries), height=_SMALL)
    _panel(drawn, "load of coordinators, ms", metrics.loads, tuple(metrics.loads), height=_SMALL)
    below = {"": metrics.under_min_isr}
    _panel(drawn, "partitions under min ISR", below, ("",), height=_SMALL, steps=True)
    _panel(drawn, "producer ids of brokers", {"": metrics.producer_ids}, ("",), height=_SMALL, steps=True)


def _mark_lane(drawn: _Figure, marks: Sequence[Mark]) -> None:
    """Draw a row with a triangle for each example of an anomaly; it links to the evidence."""
    if not marks:
        return
    drawn.text(_LEFT - 8, drawn.y + 10, "examples of anomalies", "label")
    for mark in marks:
        x, y = drawn.x(mark.at), drawn.y
        drawn.parts.append(
            f'<a href="#{escape(mark.anchor)}"><path class="anomaly" '
            f'd="M{x - 5:.1f} {y + 2:.1f}h10l-5 9z">'
            f"<title>{escape(mark.name)}, {mark.at:.1f} s</title></path></a>"
        )
    drawn.y += _LANE


def _fault_lanes(drawn: _Figure, faults: Sequence[FaultSpan], kinds: dict[str, int]) -> None:
    """Draw a row of bars for each fault and target.

    The lighter part of a bar is the time from the start of the injection until the fault took effect.
    """
    lanes: dict[str, list[str]] = {}
    for fault in faults[:_MOST_BARS]:
        bars = lanes.setdefault(fault.name, [])
        if fault.bitten is None:
            x = min(drawn.x(fault.begin), WIDTH - 60)
            bars.append(f'<text class="none" x="{x:.1f}" y="{{y}}" dy="10">no bite</text>')
            continue
        end = drawn.series.seconds if fault.healed is None else fault.healed
        colour = f"fault f{kinds[fault.fault]}"
        bars += [_bar(drawn, f"{colour} soft", fault.begin, end), _bar(drawn, colour, fault.bitten, end)]
    for name, bars in lanes.items():
        drawn.text(_LEFT - 8, drawn.y + 10, _shortened(name), "label")
        drawn.parts += [bar.replace("{y}", f"{drawn.y:.1f}") for bar in bars]
        drawn.y += _LANE
    if (left := len(faults) - _MOST_BARS) > 0:
        drawn.text(_LEFT + 4, drawn.y + 10, f"and {left} more injections, in events.jsonl", "note")
        drawn.y += _LANE
    drawn.y += _GAP - 6


def _bar(drawn: _Figure, kind: str, begin: float, end: float) -> str:
    x, width = drawn.x(begin), max(1.0, drawn.x(end) - drawn.x(begin))
    return f'<rect class="{kind}" x="{x:.1f}" width="{width:.1f}" y="{{y}}" height="12"/>'


def _bands(
    drawn: _Figure, faults: Sequence[FaultSpan], kinds: dict[str, int], top: float, bottom: float
) -> None:
    """Shade the time of every fault behind all charts."""
    for fault in faults[:_MOST_BARS]:
        if fault.bitten is not None:
            end = drawn.series.seconds if fault.healed is None else fault.healed
            x, width = drawn.x(fault.begin), max(1.0, drawn.x(end) - drawn.x(fault.begin))
            drawn.parts.append(
                f'<rect class="band f{kinds[fault.fault]}" x="{x:.1f}" width="{width:.1f}" '
                f'y="{top:.1f}" height="{bottom - top:.1f}"/>'
            )


def _panel(
    drawn: _Figure,
    title: str,
    curves: dict[str, Line],
    order: tuple[str, ...],
    *,
    height: float = _PANEL,
    steps: bool = False,
    gap: float = 0.0,
) -> None:
    """Draw one chart with its curves, the maximum of its axis and a legend; none if nothing was recorded.

    A curve is interrupted between two points that are more than `gap` seconds apart, unless `gap` is 0.
    """
    drawn_curves = {name: curves[name] for name in order if curves.get(name)}
    if not drawn_curves:
        return
    most = max(value for line in drawn_curves.values() for _, value in line)
    top = (most or 1.0) if steps else _round_up(most, _TOPS)  # the axis of a step chart ends at its maximum
    base = drawn.y + height
    drawn.text(_LEFT - 8, drawn.y + height / 2 + 4, title, "label")
    drawn.rule(_LEFT, base, WIDTH - _RIGHT, base, "axis")
    drawn.rule(_LEFT, drawn.y, WIDTH - _RIGHT, drawn.y, "grid")
    drawn.text(_LEFT - 8, drawn.y + 8, f"{top:,g}", "label")
    drawn.text(_LEFT - 8, base, "0", "label")
    x = float(WIDTH - _RIGHT)
    for number, (name, line) in reversed(list(enumerate(drawn_curves.items()))):
        points = [(drawn.x(at), base - height * value / top) for at, value in line]
        drawn.parts.append(
            f'<path class="curve c{number}" d="{_path(points, steps=steps, gap=drawn.width(gap))}"/>'
        )
        if name:
            shown = name if len(name) <= _LABEL_LENGTH else f"{name[: _LABEL_LENGTH - 1]}…"
            x -= 6.2 * len(shown) + 34
            drawn.rule(x, drawn.y - 9, x + 16, drawn.y - 9, f"curve c{number}")
            drawn.text(x + 20, drawn.y - 5, shown, "note")
    drawn.y = base + _GAP


def _axis(drawn: _Figure, bottom: float) -> None:
    """Draw the seconds below the charts, and a vertical line where each phase begins."""
    step = _round_up(drawn.series.seconds / 10, _TICKS)
    at = 0.0
    while at <= drawn.series.seconds:
        drawn.text(drawn.x(at), bottom + 18, f"{at:g} s", "tick")
        at += step
    free = [0.0, 0.0]  # the first free place of each of the two rows of names
    for at, name in drawn.series.phases:
        x = drawn.x(at)
        drawn.rule(x, 24, x, bottom, "phase")
        width = 6.4 * len(name) + 8
        begin = min(x + 2, WIDTH - width)
        row = next((number for number, end in enumerate(free) if begin >= end), None)
        if row is not None:  # if a name would overlap others in both rows, draw only the phase's line
            drawn.text(begin, 10 + 12 * row, name, "note")
            free[row] = begin + width


def _path(points: list[tuple[float, float]], *, steps: bool, gap: float) -> str:
    commands: list[str] = []
    previous = 0.0
    for number, (x, y) in enumerate(points):
        if not number or 0 < gap < x - previous:
            commands.append(f"M{x:.1f} {y:.1f}h0")  # a point without neighbours is drawn as a dot
        else:
            commands.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
        previous = x
    return "".join(commands)


def _round_up(value: float, steps: Sequence[float]) -> float:
    """Round up to one of the steps times a power of ten. Return 1 for 0."""
    scale = 1.0
    while scale * 10 <= value:
        scale *= 10
    while scale > value > 0:
        scale /= 10
    return next((scale * step for step in steps if scale * step >= value), 10 * scale) if value else 1.0


def _shortened(name: str) -> str:
    if len(name) > _LABEL_LENGTH:
        name = name.replace("kafka-", "").replace("controller-", "c")
    return name if len(name) <= _LABEL_LENGTH else f"{name[: _LABEL_LENGTH - 1]}…"
