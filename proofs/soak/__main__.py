"""`make soak`. Progress goes to stderr; the last line of stdout is one JSON object. Exits with 1 on failure."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import trio

from efo.errors import EfoError
from proofs.paths import ROOT
from proofs.soak.chart import draw
from proofs.soak.run import Soak, SoakOptions, run
from proofs.soak.slopes import ALLOWANCES, JUDGED_AFTER, growth

_OUTPUT: Final = ROOT / "var/soak"


def summarize(soak: Soak, seconds: float) -> tuple[dict[str, Any], str]:
    """Return the result, and the chart as SVG. Growth counts from `JUDGED_AFTER` seconds on, what was read always."""
    comparison = soak.comparison
    if comparison is None:
        raise AssertionError("the soak has not ended")
    series = {name: [(sample.at, float(getattr(sample, name))) for sample in soak.samples] for name in ALLOWANCES}
    growths = {name: growth(series[name], ALLOWANCES[name]) for name in ALLOWANCES}
    judged = seconds >= JUDGED_AFTER
    exact = comparison.is_exact
    flat = all(value.is_flat for value in growths.values())
    result = {
        "soak": "passed" if exact and (flat or not judged) else "failed",
        "seconds": seconds,
        "records": soak.puts[-1][1],
        "reshards": soak.served["reshards"],
        "faults": soak.served["faults"],
        **asdict(comparison),
        "growth_judged": judged,
        "growth": {
            name: {
                "grown": round(value.grown, 3),
                "allowed": round(value.allowed, 3),
                "per_hour": round(value.per_hour, 3),
                "flat": value.is_flat,
                "last": series[name][-1][1],
                "highest": max(sample[1] for sample in series[name]),
            }
            for name, value in growths.items()
        },
        "samples": len(soak.samples),
    }
    return result, draw(series, growths)


def main() -> int:
    """Parse the command line, do the soak and return the exit code."""
    parser = argparse.ArgumentParser("python -m proofs.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="duration of the load (60)")
    parser.add_argument("--rate", type=float, default=300.0, help="records per second (300)")
    parser.add_argument("--fault-rate", type=float, default=1 / 60, help="faults per second and shard (1/60)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults (1)")
    parser.add_argument("--keep", type=Path, help="keep the service's log and files in this new directory")
    arguments = parser.parse_args()
    began = time.monotonic()

    def report(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="efo-soak-") as name:
        directory = (arguments.keep or Path(name)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        options = SoakOptions(
            seconds=arguments.minutes * 60,
            rate=arguments.rate,
            fault_rate=arguments.fault_rate,
            seed=arguments.seed,
            directory=directory,
        )
        try:
            soak = trio.run(run, options, report)
            result, chart = summarize(soak, options.seconds)
        except (EfoError, ValueError) as error:
            print(error, file=sys.stderr)
            print(json.dumps({"soak": "failed", "error": str(error).splitlines()[0]}))
            return 1
    _OUTPUT.mkdir(parents=True, exist_ok=True)
    (_OUTPUT / "soak.svg").write_text(chart)
    (_OUTPUT / "samples.json").write_text(json.dumps([asdict(sample) for sample in soak.samples]))
    print(json.dumps(result | {"chart": str(_OUTPUT / "soak.svg")}))
    return 0 if result["soak"] == "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
