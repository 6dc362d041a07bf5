"""A fault script as a TOML file.

seed = 7

[[fault]]
kind = "reset"              # the fault's class name in lower case, with hyphens: GoAway is go-away
code = "REFUSED_STREAM"     # the fault's fields
when = { shard = "shardId-000000000000", nth = 3 }

[random]                    # additionally, all faults of PASSING at random
rate = 0.01                 # per second and shard
stop = 600
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from efo.errors import ConfigurationError
from efo.testing.faults.kinds import PASSING, Fault
from efo.testing.faults.script import FaultScript, When
from efo.text import decode


class _Random(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: float = 1 / 60
    stop: float = float("inf")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seed: int = 0
    fault: list[dict[str, Any]] = []
    random: _Random | None = None


def load_faults(path: Path) -> FaultScript:
    """Read a fault script from a file. Raises ConfigurationError: the file cannot be read or is invalid."""
    try:
        content = msgspec.convert(tomllib.loads(decode(path.read_bytes())), _File)
    except OSError as error:
        raise ConfigurationError(f"{path}: the fault script cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: a value is nested too deep") from None
    except ValueError as error:  # not TOML, not UTF-8, invalid, or a number with too many digits
        raise ConfigurationError(f"{path}: {error}") from None
    script = FaultScript(seed=content.seed)
    for number, entry in enumerate(content.fault, start=1):
        try:
            script.add(*_read(entry))
        except (msgspec.ValidationError, ConfigurationError) as error:
            raise ConfigurationError(f"{path}, fault {number}: {error}") from None
    if content.random is not None:
        for fault in PASSING:
            script.add(fault, When(rate=content.random.rate / len(PASSING), stop=content.random.stop))
    return script


def _read(entry: dict[str, Any]) -> tuple[Fault, When]:
    fault = dict(entry)
    when = fault.pop("when", {})
    known = [field.name for field in fields(When)]
    if not isinstance(when, dict) or (unknown := sorted(set(when) - set(known))):
        problem = f"unknown field in when: {', '.join(unknown)}" if isinstance(when, dict) else "when is not a table"
        raise ConfigurationError(f"{problem}; expected {', '.join(known)}")
    return msgspec.convert(fault, Fault), msgspec.convert(when, When)
