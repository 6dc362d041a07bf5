"""Writes the state diagram of README.md and docs/subscription.md from the table in efo/protocol/subscription.py.

`python tools/subscription_diagram.py` renews the pages; a test fails while one is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from efo.protocol.subscription import TRANSITIONS, Signal, State

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "subscription.md")
START = "<!-- The diagram is made by tools/subscription_diagram.py. -->\n"
END = "<!-- End of the diagram. -->\n"


def diagram() -> str:
    """Return the machine as a Mermaid state diagram; signals between the same two states share an arrow."""
    arrows: dict[tuple[State, State], list[Signal]] = {}
    for (state, signal), target in TRANSITIONS.items():
        arrows.setdefault((state, target), []).append(signal)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.WAITING.name}"]
    for (state, target), signals in arrows.items():
        words = ", ".join(signal.name.lower().replace("_", " ") for signal in signals)
        lines.append(f"    {state.name} --> {target.name}: {words}")
    left = {state for state, _ in TRANSITIONS}
    lines += [f"    {state.name} --> [*]" for state in State if state not in left]
    return "\n".join([*lines, "```", ""])


def renewed(page: str) -> str:
    """Return the page with the diagram as it is today. Raises ValueError: the page has no place for it."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the page has no place for the diagram between {START.strip()} and {END.strip()}")
    return f"{before}{START}{diagram()}{END}{after}"


def main() -> int:
    """Renew the pages."""
    for page in PAGES:
        page.write_text(renewed(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
