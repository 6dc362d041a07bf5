"""Runs the program of docs/readers.md under a heading, several times, and prints what each run has read, as JSON.

python -m proofs.e2e.readers.child HEADING ROUNDS
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

from proofs.paths import ROOT

_PROGRAM: Final = r"^##+ {}$.*?^```python\n(.*?)^```"


def main(heading: str, rounds: int) -> None:
    """Print a line for each run."""
    page = (ROOT / "docs" / "readers.md").read_text()
    program = re.search(_PROGRAM.format(re.escape(heading)), page, re.DOTALL | re.MULTILINE)
    if program is None:
        raise SystemExit(f"docs/readers.md has no program under {heading!r}")
    # As a module of a name: Spark's workers get its functions by value from __main__ alone.
    for _ in range(rounds):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(program[1], heading, "exec"), names)  # noqa: S102 - our own page
        rows = sorted((partition, offset, int(value)) for partition, offset, value in _rows(names["orders"]))
        sys.stdout.write(json.dumps(rows) + "\n")
        sys.stdout.flush()


def _rows(orders: Any) -> Any:
    """Return the rows of a frame of pandas, Polars or Spark, or of a relation of DuckDB."""
    if hasattr(orders, "itertuples"):
        return orders.itertuples(index=False)
    if hasattr(orders, "iter_rows"):
        return orders.iter_rows()
    return orders.fetchall() if hasattr(orders, "fetchall") else orders.collect()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
