"""What was measured: as JSON, as a table for a terminal, and as the table of docs/performance.md. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from proofs.benchmarks.figures.targets import FIGURES, Figure
from proofs.benchmarks.readers.samples import Window

START, END = "<!-- bench: from here -->", "<!-- bench: to here -->"
_STEPS = {"python": "Python alone", "native": "with efo-native"}


@dataclass(frozen=True, slots=True)
class Measured:
    """The median of some windows, and their spread."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """`why`: what this machine, or this run, lacks."""

    why: str


Value = Measured | NotMeasured
Values = Mapping[str, Value]


def measured(values: Sequence[float]) -> Measured:
    """Return the median of at least one value, and the spread."""
    return Measured(median(values), min(values), max(values))


def of_windows(windows: Sequence[Window], figure: Callable[[Window], float]) -> Measured:
    """Return a figure of each window as one."""
    return measured([figure(window) for window in windows])


def figures_as_json(values: Values) -> dict[str, dict[str, Any]]:
    """Return the measured figures beside their targets, by name, in the order of the table."""
    return {figure.name: _as_json(figure, values[figure.name]) for figure in FIGURES if figure.name in values}


def _as_json(figure: Figure, value: Value) -> dict[str, Any]:
    found: dict[str, Any] = {"value": None, "unit": figure.unit, "target": figure.target}
    if figure.aim is not None:
        found["aim"] = figure.aim
    if isinstance(value, NotMeasured):
        return found | {"met": None, "why": value.why}
    spread = {"low": rounded(value.low), "high": rounded(value.high)}
    return found | {"value": rounded(value.value), **spread, "met": figure.is_met_by(value.value)}


def rounded(value: float) -> float:
    """Return a value with three significant digits; whole numbers stay whole."""
    return float(f"{value:.3g}") if abs(value) < 1000 else float(round(value))  # noqa: PLR2004 - three digits


def table(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table for a terminal, by group, from the form as JSON."""
    rows = [(figure, _cells(figures[figure.name])) for figure in FIGURES if figure.name in figures]
    width = max((len(_title(figure)) for figure, _ in rows), default=0)
    group = ""
    for figure, (value, spread, met) in rows:
        if figure.group != group:
            group = figure.group
            yield f"\n{group}"
        yield f"  {_title(figure):<{width}}  {value:>9}  {spread:<17} {_target(figure):<28} {met}".rstrip()


def document(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of docs/performance.md, in Markdown, from the results by step."""
    lines = [f"{_STEPS[step]}: {_conditions(found['machine'])}" for step, found in runs.items()]
    titles = "".join(f" {_STEPS[step]} | spread | met |" for step in runs)
    table_lines = [f"| figure | target |{titles}", "|---|---|" + "---:|---|---|" * len(runs)]
    for figure in FIGURES:
        found = [run["figures"].get(figure.name) for run in runs.values()]
        if any(found):
            title, target = _title(figure), _target(figure)
            table_lines.append(f"| {figure.group}: {title} | {target} |{''.join(map(_columns, found))}")
    return "\n\n".join((*lines, "\n".join(table_lines)))


def _conditions(machine: Mapping[str, Any]) -> str:
    return (
        f"{machine['date']}, efo {machine['commit']}; {machine['cores']} cores ({machine['processor']}), Python"
        f" {machine['python']} ({machine['compiler']}, OpenSSL {machine['openssl']}), load average"
        f" {machine['load_average']:g}, windows of {machine['seconds']:g} s."
    )


def _columns(found: Mapping[str, Any] | None) -> str:
    return " - |  |  |" if found is None else "".join(f" {cell} |" for cell in _cells(found))


def with_table(page: str, runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page with its table replaced. Raises ValueError if it has no markers."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page has no lines {START} and {END}")
    return f"{before}{START}\n\n{document(runs)}\n\n{END}{after}"


def _title(figure: Figure) -> str:
    return f"{figure.title}, {figure.unit}" if figure.unit else figure.title


def _cells(found: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the value, its spread, and whether it meets the target."""
    if found["value"] is None:
        return "-", "", f"not measured: {found['why']}"
    met = {True: "yes", False: "no", None: ""}[found["met"]]
    return f"{found['value']:g}", f"{found['low']:g} to {found['high']:g}", met


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    aim = "" if figure.aim is None else f", aim {figure.aim:g}"
    return f"at {'least' if figure.more else 'most'} {figure.target:g}{aim}"
