"""The locked dependencies of requirements/*.txt. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_HASH: Final = "--hash="


class LockError(Exception):
    """A line of a lock file that does not pin one version by `==`."""


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """A locked package: its canonical name and its version. `here`: its marker applies to this interpreter."""

    name: str
    version: str
    here: bool = True


def parse_lock(text: str, path: str) -> list[Pin]:
    """Return the pins of a lock file. LockError: a line is no pin, so the package would not be audited."""
    pins = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].strip().removesuffix("\\").strip()
        if not content or content.startswith(_HASH):
            continue
        try:
            pins.append(_pin(Requirement(content)))
        except (InvalidRequirement, ValueError) as error:
            raise LockError(f"{path}:{number}: {content!r} is no pin such as name==1.0: run make lock") from error
    return pins


def _pin(requirement: Requirement) -> Pin:
    versions = [specifier.version for specifier in requirement.specifier if specifier.operator == "=="]
    if len(versions) != 1 or len(requirement.specifier) != 1:
        raise ValueError
    here = requirement.marker is None or requirement.marker.evaluate()
    return Pin(canonicalize_name(requirement.name), versions[0], here)


def rounds(locks: Mapping[str, Iterable[Pin]]) -> list[list[str]]:
    """Return all pins as lists of `name==version`, each with a name at most once: pip-audit refuses duplicates."""
    versions: dict[str, set[str]] = {}
    for pins in locks.values():
        for pin in pins:
            versions.setdefault(pin.name, set()).add(pin.version)
    lists: list[list[str]] = []
    for name, known in sorted(versions.items()):
        for number, version in enumerate(sorted(known)):
            if number == len(lists):
                lists.append([])
            lists[number].append(f"{name}=={version}")
    return lists
