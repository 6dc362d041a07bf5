"""Generates the state diagram in docs/read-modes.md from efo/protocol/subscription.py.

`python tools/subscription_diagram.py` updates the page. A test fails if it is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from efo.protocol.subscription import TRANSITIONS, Signal, State

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "read-modes.md",)
START = "<!-- The diagram is made by tools/subscription_diagram.py. -->\n"
END = "<!-- End of the diagram. -->\n"


def diagram() -> str:
    """Return the state machine as a Mermaid diagram. Signals between the same two states share an arrow."""
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


def with_diagram(page: str) -> str:
    """Return the page with the current diagram. Raises ValueError if the page lacks the two marker comments."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the page lacks a marker: add {START.strip()} and {END.strip()}")
    return f"{before}{START}{diagram()}{END}{after}"


def main() -> int:
    """Write the diagram to all pages."""
    for page in PAGES:
        page.write_text(with_diagram(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
