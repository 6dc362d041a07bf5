"""What was executed: the tests of the examples note it here, and `make docs` counts it.

The file is named by the environment variable DOCS_LEDGER. Without it, nothing is noted.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "DOCS_LEDGER"


def note(place: str) -> None:
    """Note that the example at this place ran, and did what its page says."""
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"place": place}) + "\n")


def read(path: Path) -> set[str]:
    """Return the noted places."""
    if not path.exists():
        return set()
    return {json.loads(line)["place"] for line in path.read_text(encoding="utf-8").splitlines()}
