"""Whether the versions of Spark do the same, or refuse by name what they lack. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

LACKING: Final[Mapping[str, Sequence[str]]] = {
    "4.0": ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "max_records", "pushDownFilters"),
    "4.1": ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "max_records"),
}
"""What a version cannot do: the option that a refusal must name."""


@dataclass(frozen=True)
class Verdict:
    """A row of a version: `alike` the newest, `refused_by_name`, or `wrong`, with what it did."""

    version: str
    row: str
    result: str
    did: str = ""


def judge(found: Mapping[str, Mapping[str, Mapping[str, Any]]], newest: str) -> list[Verdict]:
    """Return a verdict for each row of each version. `found`: by version and row. The newest must be as expected."""
    return [
        _verdict(version, row, rows.get(row), found[newest][row])
        for version, rows in found.items()
        for row in found[newest]
    ]


def _verdict(version: str, row: str, did: Mapping[str, Any] | None, expected: Mapping[str, Any]) -> Verdict:
    if did is None:
        return Verdict(version, row, "wrong", "it did not run")
    lacks = next((name for name in LACKING.get(version, ()) if name in row), None)
    if lacks is not None:
        is_named = lacks in did.get("refused", "") and f"this is Spark {version}" in did.get("refused", "")
        return Verdict(version, row, "refused_by_name" if is_named else "wrong", str(dict(did)))
    is_alike = bool(did.get("refused")) == bool(expected.get("refused")) and (
        bool(did.get("refused")) or dict(did) == dict(expected)
    )
    return Verdict(
        version, row, "alike" if is_alike else "wrong", "" if is_alike else f"{dict(did)}, not {dict(expected)}"
    )
