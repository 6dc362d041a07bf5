"""What each version of Spark's Python data source API has, and what this Spark lacks.

Admission control came with Spark 4.2, filters with 4.1. What a version lacks has a stand-in here, so that the source
imports on each of them; an option that needs it is refused by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark import __version__ as SPARK  # noqa: N812 - a constant here

from efo.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """The stand-in."""

        ReadAllAvailable = ReadMaxRows = ReadMinRows = SupportsTriggerAvailableNow = ReadLimit

__all__ = (
    "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "ReadMinRows",
    "SupportsTriggerAvailableNow", "check_version",
)  # fmt: skip

_ADMISSION: Final = "in which a Python source cannot limit a micro-batch"
_LACKS: Final = {
    "maxOffsetsPerTrigger": ((4, 2), _ADMISSION),
    "minOffsetsPerTrigger": ((4, 2), _ADMISSION),
    "maxTriggerDelay": ((4, 2), _ADMISSION),
    "pushDownFilters": ((4, 1), "which tells a Python source no filters"),
}
"""Options that need a version of Spark, and why."""


def check_version(names: frozenset[str], version: str = SPARK) -> None:
    """Raise ConfigurationError if this Spark cannot do what one of these options says."""
    found: Any = tuple(int(part) for part in version.split(".")[:2])
    for name, (needed, why) in _LACKS.items():
        if name in names and found < needed:
            raise ConfigurationError(
                f"{name} needs Spark {needed[0]}.{needed[1]} or newer, but this is Spark {version}, {why}: remove it,"
                f" or install 'pyspark>={needed[0]}.{needed[1]}'"
            )
