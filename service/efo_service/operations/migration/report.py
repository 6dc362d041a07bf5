"""The report of a migration: a line for each shard, and what forbids to write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from efo.model import Checkpoint

Outcome = Literal["moved", "nothing", "refused"]


@dataclass(frozen=True, slots=True)
class ShardLine:
    """What happens with one shard.

    `outcome`: "moved": its position is written; "nothing": there is nothing to write; "refused": its position cannot
    be expressed. `before`: the position as it is stored, `after`: as it is written; empty without one. `why`: what
    a reader of the report has to know.
    """

    shard: str
    outcome: Outcome
    before: str = ""
    after: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """`lines`: sorted by shard. `problems`: each forbids to write. `notes`: what is left to the operator."""

    lines: tuple[ShardLine, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def refusals(self) -> list[str]:
        """Everything that forbids to write."""
        refused = [f"{line.shard}: {line.why}" for line in self.lines if line.outcome == "refused"]
        return [*self.problems, *refused]

    def values(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        lines = [
            {"shard": line.shard, "outcome": line.outcome, "from": line.before, "to": line.after, "why": line.why}
            for line in self.lines
        ]
        return {"shards": lines, "refused": self.refusals, "notes": list(self.notes)}


def sentence(parts: Sequence[str]) -> str:
    """Return several remarks as one text."""
    return "; ".join(part for part in parts if part)


def shown(checkpoint: Checkpoint | None) -> str:
    """Return a checkpoint as the report shows it."""
    return "no checkpoint" if checkpoint is None else str(checkpoint)
