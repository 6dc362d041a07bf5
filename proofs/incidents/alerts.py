"""When alerts fire, by the rules at their real windows: promtool computes it from what a process served in a fault."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tools.prometheus_rules import RULES

_BEFORE: Final = 10
"""Minutes without the fault, so that the windows of the rules have data."""
_MINUTES: Final = 30
"""Minutes of the fault, and the last at which an alert may fire."""
_TARGET: Final = {"job": "efo", "instance": "host:8080"}
_GROWS: Final = ("_total", "_bucket", "_count", "_sum")

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Scrape:
    """What /metrics reported at a time (monotonic seconds). None: it did not answer."""

    at: float
    text: str | None

    def samples(self) -> dict[Series, float]:
        """Return the samples of the metrics that rules name."""
        rules = RULES.read_text()
        families = text_string_to_metric_families(self.text or "")
        found = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
            if sample.name in rules
        }
        return {("up", frozenset()): float(self.text is not None), **found}


def minutes_until(alert: str, healthy: Scrape, first: Scrape, second: Scrape) -> int | None:
    """Return after how many minutes of a fault an alert fires; None: not in half an hour. Raises OSError.

    `healthy`: from before the fault. `first`, `second`: during it, some seconds apart. What a gauge does between these,
    and a counter since the fault began, goes on.
    """
    expr = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    times = range(_BEFORE + 1, _BEFORE + _MINUTES + 1)
    order = ["efo-recordings", "efo-alerts"]
    test = {
        "interval": "1m",
        "input_series": [*_series(healthy, first, second)],
        "promql_expr_test": [
            {"expr": f"{expr} > bool 0", "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": 1}]}
            for minute in times
        ],
    }
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "group_eval_order": order, "tests": [test]}
    path = shutil.which("promtool")
    if path is None:
        raise FileNotFoundError("promtool is not installed (Debian: apt-get install prometheus)")
    with TemporaryDirectory() as directory:
        file = Path(directory) / "test.yml"
        file.write_text(json.dumps(content))
        done = subprocess.run([path, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    failed = {_minutes(found) for found in re.findall(r"time: ([\dhms]+)", output)}
    if done.returncode and not failed:
        raise OSError(f"promtool: {output[-1000:]}")
    return next((minute - _BEFORE for minute in times if minute not in failed), None)


def _minutes(duration: str) -> int:
    """Return the minutes of a duration as promtool prints it, such as 1h5m or 11m."""
    hours, minutes = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:\d+s)?", duration).groups()  # type: ignore[union-attr]
    return int(hours or 0) * 60 + int(minutes or 0)


def _series(healthy: Scrape, first: Scrape, second: Scrape) -> Iterator[Mapping[str, str]]:
    before, one, two = healthy.samples(), first.samples(), second.samples()
    for series in before.keys() | two.keys():
        name, labels = series
        text = ", ".join(f'{label}="{value}"' for label, value in {**_TARGET, **dict(labels)}.items())
        past = f"{before[series]!r}x{_BEFORE}" if series in before else f"_x{_BEFORE}"
        if series not in two:
            now = "stale"
        else:
            if name.endswith(_GROWS):
                slope = (two[series] - before.get(series, 0.0)) / (second.at - healthy.at)
            else:
                slope = (two[series] - one.get(series, two[series])) / (second.at - first.at)
            now = f"{two[series]!r}{60 * slope:+f}x{_MINUTES}"
        yield {"series": f"{name}{{{text}}}", "values": f"{past} {now}"}
