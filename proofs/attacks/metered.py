"""Runs efo's command line and measures the steps of its event loop: `python -m proofs.attacks.metered FILE run`.

At SIGUSR2, the slowest step since the signal before is written to FILE, as JSON.
"""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import trio

from efo_service.cli import main
from tests.step_meter import Step, StepMeter


def run() -> None:
    """Run it."""
    path = Path(sys.argv.pop(1))
    meter = StepMeter()

    def tell(*_: object) -> None:
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"seconds": meter.slowest.seconds, "task": meter.slowest.task, "steps": meter.steps}))
        meter.slowest, meter.steps = Step(0.0, "none"), 0
        new.replace(path)

    signal.signal(signal.SIGUSR2, tell)
    with patch.object(trio, "run", partial(trio.run, instruments=[meter])):
        main()


if __name__ == "__main__":
    run()
