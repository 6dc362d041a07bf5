"""Public names and settings that have another name now. The former one works, and warns, for two minor versions.

The policy: what is public (`efo` and the modules that it lists, settings of the service) is renamed or taken away in
a minor version, with an entry here and in the change log. The former name stays for that version and the one after it.
A test fails as soon as the version that an entry names is reached, so that no former name stays for longer. What has
no successor is an entry whose `now` says what to do instead, and works unchanged until then.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from efo.errors import ConfigurationError


class EfoDeprecationWarning(FutureWarning):
    """A name of efo is used that a later version does not have. Shown by default: it is for who runs a program."""


class Renamed(NamedTuple):
    """What a former name is called now. `until`: the version that does not have the former name any more."""

    now: str
    until: str


RENAMED: Final[Mapping[str, Renamed]] = {}
"""By the former name: `efo.Old` of `Renamed("efo.model.New", "0.3")`, or the class of a setting and its former name,
`ConsumerSettings.old_seconds` of `Renamed("new_seconds", "0.3")`. The sections of the service are classes too.
"""


def renamed_object(name: str) -> Any:
    """Return the object of a former public name, and warn. Raises KeyError if it is none."""
    renamed = RENAMED[name]
    _warn(name, renamed)
    module, _, attribute = renamed.now.rpartition(".")
    return getattr(import_module(module), attribute)


def with_new_names(owner: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the names that they have now, and warn of each former one.

    `owner`: the name of their class. Raises ConfigurationError if both names of one setting are there.
    """
    found = dict(settings)
    for name in settings:
        if (renamed := RENAMED.get(f"{owner}.{name}")) is None:
            continue
        if renamed.now in settings:
            raise ConfigurationError(f"{name} and {renamed.now}: they are one setting: write {renamed.now}")
        _warn(name, renamed)
        found[renamed.now] = found.pop(name)
    return found


def _warn(name: str, renamed: Renamed) -> None:
    """Warn at the line of the program that uses the name, however deep in efo it was found."""
    from inspect import currentframe  # noqa: PLC0415 - slow to import, and seldom used

    level, frame = 1, currentframe()
    while frame is not None and frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == "efo":
        level, frame = level + 1, frame.f_back
    text = f"{name} is called {renamed.now} now: write that; efo {renamed.until} will not have {name}"
    warnings.warn(text, EfoDeprecationWarning, stacklevel=level)
