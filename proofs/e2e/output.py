"""The interfaces of an output of the relays, from which Spark reads, and of the destination to which it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from efo_service.demo.demo import DemoProcess
from efo_service.demo.load import FoundRecord


class Output(Protocol):
    """The embedded log, or a topic of a Kafka broker."""

    @property
    def name(self) -> str:
        """Its name in the run's result."""
        ...

    @property
    def relay_config(self) -> str:
        """The table [relay] of the configuration, with its subtables."""
        ...

    @property
    def pipeline_config(self) -> str:
        """Lines for the table [pipeline] of the configuration."""
        ...

    @property
    def servers(self) -> Sequence[DemoProcess]:
        """The servers that the output needs; the run kills them too."""
        ...

    @property
    def max_relay_restarts(self) -> int:
        """How often a relay may end without a kill and is restarted, as an orchestrator would do."""
        ...

    @property
    def max_spark_restarts(self) -> int:
        """The same for Spark."""
        ...

    async def prepare(self) -> None:
        """Create what readers need before a relay has started. The servers are running."""

    async def count(self) -> int:
        """Return how many records the output holds so far."""

    async def rows(self) -> list[FoundRecord]:
        """Return all records."""


class Destination(Protocol):
    """Parquet files, or a table."""

    @property
    def pipeline_config(self) -> str:
        """Lines for the table [pipeline] of the configuration: where it writes, and its checkpoint."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the pipeline's process, besides this process's."""
        ...

    async def count(self) -> int:
        """Return how many rows Spark has committed so far."""

    async def rows(self) -> list[FoundRecord]:
        """Return all rows."""
