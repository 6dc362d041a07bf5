"""Summaries of several rounds, and efo's ratio to each peer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

Rounds = Mapping[str, Sequence[float]]
"""Values of each round by metric."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The median of a metric over the rounds, and its spread."""

    median: float
    low: float
    high: float
    rounds: int


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least this percentage of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def summarize(values: Sequence[float]) -> Summary:
    """Return median and spread of at least one value."""
    return Summary(median(values), min(values), max(values), len(values))


def ratio(base: Sequence[float], peer: Sequence[float]) -> float | None:
    """Return the median of the base's values divided by the peer's of the same round; None if a value is 0.

    The rounds are interleaved: so what else the machine did weighs on both values of a round.
    """
    pairs = list(zip(base, peer, strict=False))
    if not pairs or any(value == 0 for _, value in pairs):
        return None
    return median(mine / theirs for mine, theirs in pairs)


def ratios(results: Mapping[str, Rounds], base: str) -> dict[str, dict[str, float | None]]:
    """Return by peer and metric the ratio of the base to the peer, for each metric that both have."""
    mine = results.get(base, {})
    return {
        peer: {metric: ratio(mine[metric], values) for metric, values in rounds.items() if metric in mine}
        for peer, rounds in results.items()
        if peer != base
    }
