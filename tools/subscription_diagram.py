"""Writes the state diagram in README.md and docs/subscription.md from the table in efo/protocol/subscription.py.

`python tools/subscription_diagram.py` updates the pages. A test fails while a page is outdated.
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
    """Return the state machine as a Mermaid diagram, with one arrow for all signals between two states."""
    arrows: dict[tuple[State, State], list[Signal]] = {}
    for (state, signal), target in TRANSITIONS.items():
        arrows.setdefault((state, target), []).append(signal)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.WAITING.name}"]
    for (state, target), signals in arrows.items():
        label = ", ".join(signal.name.lower().replace("_", " ") for signal in signals)
        lines.append(f"    {state.name} --> {target.name}: {label}")
    not_final = {state for state, _ in TRANSITIONS}
    lines += [f"    {state.name} --> [*]" for state in State if state not in not_final]
    return "\n".join([*lines, "```", ""])


def renewed(page: str) -> str:
    """Return the page with its diagram updated. Raise ValueError if the page has no markers for it."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the page has no place for the diagram: {START.strip()} or {END.strip()} is missing")
    return f"{before}{START}{diagram()}{END}{after}"


def main() -> int:
    """Update the pages."""
    for page in PAGES:
        page.write_text(renewed(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
