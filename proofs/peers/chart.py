"""The chart of the results, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from xml.sax.saxutils import escape

from proofs.peers.table import figure

PANELS: Final = (
    ("throughput/1000B/per_cpu", "records of 1,000 B per CPU second"),
    ("throughput/200B/per_cpu", "records of 200 B per CPU second"),
    ("throughput/kpl/per_cpu", "KPL user records of 100 B per CPU second"),
    ("start/4/first_s", "seconds from start to first record, 4 shards"),
    ("idle/1000/rss_mb", "MB resident, 1,000 idle shards"),
    ("latency/p99_ms", "ms from put to handler, p99"),
)
_COLUMNS: Final = 2
_WIDTH: Final = 460
_LABEL: Final = 120
_BAR: Final = 220
_ROW: Final = 20
_TITLE: Final = 34
_STYLE: Final = "font-family: sans-serif; font-size: 12px"


def draw(peers: Mapping[str, Mapping[str, Any]], base: str) -> str:
    """Return an SVG with a panel for each metric of `PANELS` that was measured: medians, and the spread as a line."""
    panels = [
        (title, values)
        for metric, title in PANELS
        if (values := {name: peer["metrics"][metric] for name, peer in peers.items() if metric in peer["metrics"]})
    ]
    height = _TITLE + _ROW * (max((len(values) for _, values in panels), default=0) + 1)
    rows = -(-len(panels) // _COLUMNS)
    size = f'width="{_WIDTH * _COLUMNS}" height="{height * rows}"'
    body = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{_STYLE}">']
    body.append('<rect width="100%" height="100%" fill="white"/>')
    for number, (title, values) in enumerate(panels):
        body.extend(_panel(title, values, base, number % _COLUMNS * _WIDTH, number // _COLUMNS * height))
    return "\n".join([*body, "</svg>", ""])


def _panel(title: str, values: Mapping[str, Mapping[str, float]], base: str, left: int, top: int) -> Iterator[str]:
    yield f'<text x="{left + 10}" y="{top + 20}" font-weight="bold">{escape(title)}</text>'
    largest = max(value["high"] for value in values.values()) or 1.0
    for number, (name, value) in enumerate(values.items()):
        y = top + _TITLE + number * _ROW
        start = left + _LABEL
        low, middle, high = (value[key] / largest * _BAR for key in ("low", "median", "high"))
        colour = "#c2410c" if name.startswith(base) else "#94a3b8"
        yield f'<text x="{start - 8}" y="{y + 11}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect x="{start}" y="{y}" width="{middle:.1f}" height="14" fill="{colour}"/>'
        yield f'<path d="M{start + low:.1f} {y + 7}H{start + high:.1f}" stroke="#111827"/>'
        yield f'<text x="{start + high + 6:.1f}" y="{y + 11}">{figure(value["median"])}</text>'
