"""Mutants that are named in a file: those without effect, and planted ones. Each entry must still fit the code."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofs.mutants.operators import Mutant, textual_mutant


class StaleEntryError(Exception):
    """An entry of the file fits no mutant, or is incomplete."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A mutant that no test can notice. The first fields are the mutant's. `reason`: why no test can notice it."""

    path: str
    function: str
    before: str
    after: str
    reason: str
    occurrence: int = 1

    def fits(self, mutant: Mutant) -> bool:
        """Return whether this entry names the mutant."""
        named = (self.path, self.function, self.before, self.after, self.occurrence)
        return named == (mutant.path, mutant.function, mutant.before, mutant.after, mutant.occurrence)


def read_equivalents(file: Path) -> list[Equivalent]:
    """Read the mutants without effect. Raises StaleEntryError."""
    equivalents = []
    for entry in _entries(file, "equivalent"):
        texts = {name: value for name, value in entry.items() if name != "occurrence"}
        occurrence = entry.get("occurrence", 1)
        if not isinstance(occurrence, int):
            raise StaleEntryError(f"{file.name}: {dict(entry)}: occurrence: expected an integer")
        path, function, before, after, reason = _texts(file, texts, ("path", "function", "before", "after", "reason"))
        equivalents.append(Equivalent(path, function, before, after, reason, occurrence))
    return equivalents


def check_equivalents(entries: Sequence[Equivalent], mutants: Sequence[Mutant]) -> None:
    """Raise StaleEntryError if an entry fits no mutant: its code has changed, so its reason may be wrong."""
    stale = [entry for entry in entries if not any(entry.fits(mutant) for mutant in mutants)]
    if stale:
        listed = "".join(f"\n  {entry.path} {entry.function}: {entry.before!r} -> {entry.after!r}" for entry in stale)
        raise StaleEntryError(f"no mutant fits these entries, correct or delete them:{listed}")


def read_planted(file: Path, modules: Mapping[str, bytes]) -> list[Mutant]:
    """Read the planted mutants, which every run tries. Raises StaleEntryError."""
    planted = []
    for entry in _entries(file, "planted"):
        path, before, after, _ = _texts(file, entry, ("path", "before", "after", "defect"))
        mutant = textual_mutant(path, modules.get(path, b""), before, after)
        if mutant is None:
            raise StaleEntryError(f"{file.name}: {path} does not have {before!r} exactly once: correct or delete it")
        planted.append(mutant)
    return planted


def _entries(file: Path, name: str) -> Iterable[Mapping[str, Any]]:
    entries: Sequence[Mapping[str, Any]] = tomllib.loads(file.read_text()).get(name, ()) if file.exists() else ()
    return entries


def _texts(file: Path, entry: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    if set(entry) != set(names) or not all(isinstance(value, str) for value in entry.values()):
        raise StaleEntryError(f"{file.name}: {dict(entry)}: expected the texts {', '.join(names)}")
    if not entry[names[-1]]:
        raise StaleEntryError(f"{file.name}: {dict(entry)}: {names[-1]} is empty")
    return [entry[name] for name in names]
