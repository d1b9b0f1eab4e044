"""A bar chart as SVG, written by hand: groups of bars on a logarithmic scale, with lines to compare with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLORS = ("#1b4965", "#2a9d8f", "#e9a23b", "#c8553d")
_LEFT, _TOP, _HEIGHT, _BOTTOM, _GROUP, _BAR = 52, 56, 300, 46, 44, 9


def bar_chart(
    title: str,
    series: Sequence[str],
    groups: Mapping[str, Sequence[float | None]],
    lines: Mapping[str, float],
) -> str:
    """Return the chart. Each group has one value per series, None where nothing was measured; bars grow from 1."""
    values = [v for group in groups.values() for v in group if v is not None and v > 0]
    low = min(0.5, *values) if values else 0.5
    high = max(10.0, *values, *lines.values()) if values else 10.0
    bottom, top = math.floor(math.log10(low) * 2) / 2, math.ceil(math.log10(high) * 2) / 2
    width = _LEFT + _GROUP * len(groups) + 20
    height = _TOP + _HEIGHT + _BOTTOM

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (1 - (math.log10(value) - bottom) / (top - bottom))

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for i, name in enumerate(series):
        x = _LEFT + 130 * i
        out.append(f'<rect x="{x}" y="28" width="10" height="10" fill="{COLORS[i % len(COLORS)]}"/>')
        out.append(f'<text x="{x + 15}" y="37">{escape(name)}</text>')
    for tick in _ticks(bottom, top):
        out.append(f'<line x1="{_LEFT}" x2="{width - 10}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}x</text>')
    for g, (group, measured) in enumerate(groups.items()):
        start = _LEFT + _GROUP * g + 4
        for i, value in enumerate(measured):
            if value is None or value <= 0:
                continue
            upper, lower = min(y(value), y(1)), max(y(value), y(1))
            out.append(
                f'<rect x="{start + _BAR * i}" y="{upper:.1f}" width="{_BAR - 1}" height="{max(1.0, lower - upper):.1f}" '
                f'fill="{COLORS[i % len(COLORS)]}"><title>{escape(group)}, {escape(series[i])}: {value:.2f}x</title></rect>'
            )
        out.append(
            f'<text x="{start + _BAR * 2}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{escape(group)}</text>'
        )
    for name, value in lines.items():
        out.append(
            f'<line x1="{_LEFT}" x2="{width - 10}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#444" '
            f'stroke-dasharray="4 3"><title>{escape(name)}</title></line>'
        )
    return "\n".join([*out, "</svg>", ""])


def _ticks(bottom: float, top: float) -> list[float]:
    wanted = [m * 10**e for e in range(math.floor(bottom), math.ceil(top) + 1) for m in (1, 3)]
    return [t for t in wanted if bottom - 1e-9 <= math.log10(t) <= top + 1e-9]
