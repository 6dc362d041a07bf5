"""What the run found, as counts, and whether it passed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from efo_service.demo.load import Comparison
from efo_service.spark.pipeline.pipeline import WORKER_TIMEOUT

_BAD: Final = ("lost", "duplicated", "unexpected", "order_violations")
REFUSALS: Final = {
    "executors without efo": ('format("efo") was planned with efo', "which reads, cannot import efo"),
    "executors with another version": ('format("efo") was planned with efo', "which reads, has efo"),
    "planner without efo": ("[DATA_SOURCE_NOT_FOUND]", "Failed to find the data source: efo"),
}
"""The wrong set-ups that are tried, and what the message of each must say."""
SLOW: Final = (WORKER_TIMEOUT, "[CANNOT_OPEN_SOCKET]", "Skipping the lookup of Python Data Sources")
"""What Spark says if its Python workers do not start within ten seconds, which cannot be set: the machine is busy."""
_LINE: Final = re.compile(r'^.*?((?:ImportError: format\("efo"\)|\[DATA_SOURCE_NOT_FOUND\]).*)$', re.MULTILINE)


def refusal(output: str) -> str:
    """Return the sentence by which a job says what is wrong with its Pythons, "" if there is none."""
    found = _LINE.search(output)
    return found[1].removeprefix("ImportError: ").strip() if found else ""


def is_slow(output: str) -> bool:
    """Return whether a job failed only because its machine was too busy to start Python workers."""
    return any(text in output for text in SLOW)


def summarize(
    produced: int, read: Mapping[str, Comparison], refusals: Mapping[str, str], killed: Sequence[str]
) -> dict[str, Any]:
    """Return the counts of the run.

    `read`: what each way of reading has landed. `refusals`: the sentence of each wrong set-up. `killed`: the jobs in
    which a worker was killed.
    """
    totals = {name: sum(getattr(one, name) for one in read.values()) for name in _BAD}
    return {
        "produced": produced,
        "landed": {name: one.found for name, one in read.items()},
        **totals,
        "kills": len(killed),
        "killed_in": list(killed),
        "refusals": dict(refusals),
    }


def problems(summary: Mapping[str, Any], ways: Sequence[str]) -> list[str]:
    """Return what is wrong with a run, in sentences. `ways`: all ways of reading that must have been tried."""
    found = [f"{summary[name]} records {name.replace('_', ' ')}" for name in _BAD if summary[name]]
    found += [f"{way} was not tried" for way in ways if way not in summary["landed"]]
    found += [
        f"{way} landed {count} of {summary['produced']} records"
        for way, count in summary["landed"].items()
        if count != summary["produced"]
    ]
    if not summary["kills"]:
        found.append("no worker was killed")
    for name, parts in REFUSALS.items():
        if not all(part in summary["refusals"].get(name, "") for part in parts):
            found.append(f"{name}: expected {' ... '.join(parts)}, not {summary['refusals'].get(name, '')!r}")
    return found
