"""The libraries whose checkpoints efo reads, and the stores that each of them uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from efo_service.errors import UsageError
from efo_service.operations.migration.async_kinesis import AsyncKinesisKeys, AsyncKinesisTable
from efo_service.operations.migration.harlow import HarlowColumns, HarlowKeys, HarlowTable
from efo_service.operations.migration.kcl import KclTable, KinesumerTable, VmwareTable
from efo_service.operations.migration.layout import Layout

FormatName = Literal["kcl", "kclpy", "vmware-go-kcl", "kinesumer", "harlow", "async-kinesis"]
Store = Literal["dynamodb", "redis", "sql"]


@dataclass(frozen=True, slots=True)
class Format:
    """A library. `layouts`: by the kind of store. `initial`: what it reads of a shard without a checkpoint."""

    library: str
    layouts: dict[Store, Layout]
    initial: str

    def layout(self, store: Store) -> Layout:
        """Return the layout in a kind of store. Raises UsageError if the library has none."""
        if store not in self.layouts:
            kinds = ", ".join(SCHEMES[kind] for kind in self.layouts)
            raise UsageError(f"{self.library} keeps no checkpoints there: expected {kinds}")
        return self.layouts[store]


SCHEMES: Final[dict[Store, str]] = {
    "dynamodb": "dynamodb:TABLE",
    "redis": "redis://...",
    "sql": "postgresql://... or mysql://...",
}
_KCL_INITIAL: Final = "its InitialPositionInStream"
FORMATS: Final[dict[FormatName, Format]] = {
    "kcl": Format("KCL", {"dynamodb": KclTable()}, _KCL_INITIAL),
    "kclpy": Format("amazon_kclpy", {"dynamodb": KclTable()}, _KCL_INITIAL),
    "vmware-go-kcl": Format("vmware-go-kcl", {"dynamodb": VmwareTable()}, _KCL_INITIAL),
    "kinesumer": Format("kinesumer", {"dynamodb": KinesumerTable()}, "LATEST"),
    "harlow": Format(
        "harlow/kinesis-consumer",
        {"dynamodb": HarlowTable(), "redis": HarlowKeys(), "sql": HarlowColumns()},
        "its WithShardIteratorType, LATEST by default",
    ),
    "async-kinesis": Format(
        "async-kinesis",
        {"dynamodb": AsyncKinesisTable(), "redis": AsyncKinesisKeys()},
        "its iterator_type, TRIM_HORIZON by default",
    ),
}
"""By the name in the command."""
