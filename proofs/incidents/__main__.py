"""Play incidents on real processes, and see when and how the operator is alerted, and what is lost.

Each incident runs in a process of its own. stdout has a table and, as the last line, one JSON object: `untold`, those
of which some surface (/readyz, /status, /metrics, an alert, the log) did not tell the expected in time; `slowest_s`,
the longest time until one did; `lost`, records that did not arrive after all. An alert's time is that of the rules at
their real windows, by promtool, from the metrics that the process served. Exit status 1 if anything is wrong.

example: make incidents; make incidents ARGS="sink --jobs 1" plays one kind
"""

from __future__ import annotations

import sys
from typing import Final

from proofs.situations.runner import run_command

_LINE: Final = {"incidents": "cases", "untold": "wrong", "slowest_s": "slowest_s_worst", "lost": "lost"}

if __name__ == "__main__":
    sys.exit(run_command("proofs.incidents", __doc__ or "", _LINE))
