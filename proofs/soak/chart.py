"""The chart of a soak, as SVG: a panel for each measurement, with the line that was fitted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from proofs.soak.slopes import ALLOWANCES, Growth

_WIDTH: Final = 900
_HEIGHT: Final = 130
_LEFT: Final = 70
_TITLE: Final = 28
_STYLE: Final = "font-family: sans-serif; font-size: 12px"


def draw(series: Mapping[str, Sequence[tuple[float, float]]], growths: Mapping[str, Growth]) -> str:
    """Return an SVG. `series`: the samples of each measurement, as pairs of seconds and value."""
    height = (_HEIGHT + _TITLE + 10) * len(series)
    body = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" style="{_STYLE}">']
    body.append('<rect width="100%" height="100%" fill="white"/>')
    for number, (name, samples) in enumerate(series.items()):
        body.extend(_panel(name, samples, growths[name], number * (_HEIGHT + _TITLE + 10) + _TITLE))
    return "\n".join([*body, "</svg>", ""])


def _panel(name: str, samples: Sequence[tuple[float, float]], growth: Growth, top: int) -> Iterator[str]:
    unit = ALLOWANCES[name].unit
    title = f"{name} {unit}: {growth.grown:+.2f} over the fitted time, allowed {growth.allowed:.2f}".replace(" :", ":")
    colour = "#15803d" if growth.is_flat else "#b91c1c"
    first, last = samples[0][0], samples[-1][0]
    highest = max(*(value for _, value in samples), growth.start[1], growth.end[1]) or 1.0

    def place(sample: tuple[float, float]) -> str:
        x = _LEFT + (sample[0] - first) / ((last - first) or 1.0) * (_WIDTH - _LEFT - 20)
        return f"{x:.1f},{top + _HEIGHT - max(0.0, sample[1]) / highest * _HEIGHT:.1f}"

    yield f'<text x="{_LEFT}" y="{top - 8}" font-weight="bold" fill="{colour}">{escape(title)}</text>'
    yield f'<text x="{_LEFT - 8}" y="{top + 10}" text-anchor="end">{highest:.4g}</text>'
    yield f'<text x="{_LEFT - 8}" y="{top + _HEIGHT}" text-anchor="end">0</text>'
    yield f'<path d="M{_LEFT} {top}V{top + _HEIGHT}H{_WIDTH - 20}" stroke="#94a3b8" fill="none"/>'
    yield f'<polyline points="{" ".join(map(place, samples))}" stroke="#1d4ed8" fill="none"/>'
    line = f"{place(growth.start)} {place(growth.end)}"
    yield f'<polyline points="{line}" stroke="{colour}" stroke-width="2" stroke-dasharray="6 3" fill="none"/>'
