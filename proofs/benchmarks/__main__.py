"""Measures efo, each figure beside its target: `make bench`. It takes about twenty minutes. See docs/performance.md.

    data-path      one core, through leases, checkpoints and metrics, at full speed
    relay          the whole `efo run`, into the embedded log and into Kafka
    cores          several processes of one consumer
    small-events   events of one record: CPU time, and the time from put to handler
    telemetry      what metrics, traces and CloudWatch's metrics add to the data path
    idle           shards without records; the stop
    start          the start of a process, and its restart
    linearity      CPU time per record with more shards

Use a machine that does nothing else. Progress goes to stderr; the last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proofs.benchmarks.figures.cores import cores
from proofs.benchmarks.figures.idle_and_start import idle, start
from proofs.benchmarks.figures.relaying import relay
from proofs.benchmarks.figures.results import NotMeasured, Value, figures_as_json, table, with_table
from proofs.benchmarks.figures.small_events import small_events
from proofs.benchmarks.figures.targets import FIGURES, GROUPS
from proofs.benchmarks.figures.telemetry import telemetry
from proofs.benchmarks.figures.throughput import data_path, linearity
from proofs.benchmarks.machine import machine
from proofs.benchmarks.readers.running import Timing
from proofs.paths import ROOT

MEASURES: Mapping[str, Callable[[Timing], Mapping[str, Value]]] = {
    "data-path": data_path,
    "relay": relay,
    "cores": cores,
    "small-events": small_events,
    "telemetry": telemetry,
    "idle": idle,
    "start": start,
    "linearity": linearity,
}
RESULTS = {"python": ROOT / "docs" / "bench.json", "native": ROOT / "docs" / "native" / "bench.json"}
"""By the step that made them."""
PAGE = ROOT / "docs" / "performance.md"
EXAMPLE = """examples:
  make bench ARGS="--only data-path small-events --seconds 2"
  make bench ARGS="--save"
  EFO_NATIVE=0 make bench ARGS="--save"
"""


def measure(group: str, timing: Timing) -> dict[str, Value]:
    """Measure a group. A figure that cannot be measured says why, and the others go on."""
    names = [figure.name for figure in FIGURES if figure.group == group]
    try:
        found = MEASURES[group](timing)
    except Exception as error:  # noqa: BLE001 - of any part of the system
        why = (str(error) or type(error).__name__).splitlines()[0]
        report(f"{group}: {type(error).__name__}: {error}")
        return {name: NotMeasured(why) for name in names}
    return {name: found[name] for name in names}


def report(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def save(found: dict[str, Any]) -> None:
    """Write the results file and the table of the page. Figures that were not measured now stay as they were."""
    path = RESULTS[found["machine"]["step"]]
    kept = json.loads(path.read_text())["figures"] if path.exists() else {}
    merged = kept | found["figures"]
    found = found | {"figures": {figure.name: merged[figure.name] for figure in FIGURES if figure.name in merged}}
    path.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), kept_results()))


def kept_results() -> dict[str, dict[str, Any]]:
    """Return the kept results, by step."""
    return {step: json.loads(path.read_text()) for step, path in RESULTS.items() if path.exists()}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=GROUPS, default=GROUPS, help="some of the above")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a window; three are made (default: 5)")
    parser.add_argument("--json", action="store_true", help="print the JSON alone, without the table")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write the table of docs/performance.md, and docs/bench.json or, with efo-native, docs/native/bench.json",
    )
    return parser.parse_args(arguments)


def main() -> int:
    options = parse()
    timing = Timing(options.seconds)
    values: dict[str, Value] = {}
    for group in dict.fromkeys(options.only):
        report(group)
        began = time.monotonic()
        values |= measure(group, timing)
        report(f"{group}: {time.monotonic() - began:.0f} s")
    found = {"figures": figures_as_json(values), "machine": machine(seconds=options.seconds)}
    if options.save:
        save(found)
    if not options.json:
        print("\n".join(table(found["figures"])))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
