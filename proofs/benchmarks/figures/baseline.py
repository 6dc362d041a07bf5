"""Ratios of one run, beside those of a kept run: what has become slower. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

LOSS: Final = 0.1
"""A ratio is lost when its median is below the spread of the baseline by more than this share."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median over the rounds. `low`, `high`: the quartiles, which one bad round does not move."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A ratio now and then. `now`, `then`: None if it was not measured."""

    name: str
    now: Ratio | None
    then: Ratio | None

    @property
    def is_lost(self) -> bool:
        """Whether it is a loss beyond the spread."""
        return self.now is not None and self.then is not None and self.now.median < self.then.low * (1 - LOSS)


def ratio_of(base: Sequence[float], others: Sequence[float]) -> Ratio:
    """Return the ratio of values to those of the same round. What else the machine did weighs on both."""
    ratios = [value / other for value, other in zip(base, others, strict=True)]
    if len(ratios) == 1:
        return Ratio(ratios[0], ratios[0], ratios[0])
    low, _, high = quantiles(ratios, n=4, method="inclusive")
    return Ratio(median(ratios), low, high)


def compare(now: Mapping[str, Ratio], then: Mapping[str, Ratio]) -> list[Comparison]:
    """Return all ratios of both runs."""
    return [Comparison(name, now.get(name), then.get(name)) for name in dict.fromkeys([*then, *now])]


def ratios_from(found: Mapping[str, Any]) -> dict[str, Ratio]:
    """Return the ratios of a baseline file."""
    return {name: Ratio(**ratio) for name, ratio in found["ratios"].items()}


def lines_of(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield a table for a terminal."""
    yield f"{'efo / other':<16} {'now':>21} {'baseline':>21}"
    for comparison in comparisons:
        now, then = _shown(comparison.now), _shown(comparison.then)
        yield f"{comparison.name:<16} {now:>21} {then:>21}{'  LOST' if comparison.is_lost else ''}"


def _shown(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
