"""What a producer offers behind each surface, whether its calls are awaited or block."""

from __future__ import annotations

from typing import Any

from efo.adapters.engine import Engine
from efo.producer.producer import Producer


class AdaptedProducer:
    """Puts records into a stream, by a producer in a trio thread: `efo.Producer`."""

    def __init__(self, engine: Engine[Producer[Any]]) -> None:
        self._engine = engine
        self.stream: str = engine.value.stream

    @property
    def buffered_records(self) -> int:
        """The number of records that were put and are neither stored nor given up."""
        self._engine.side.check_process()
        return self._engine.value.buffered_records

    @property
    def is_auto(self) -> bool:
        """Whether the service distributes the records (strategy AUTO), as far as is known: keys are optional then."""
        return self._engine.value.is_auto

    @property
    def buffered_bytes(self) -> int:
        """What counts against `ProducerSettings.max_buffered_bytes`."""
        self._engine.side.check_process()
        return self._engine.value.buffered_bytes

    def close(self) -> None:
        """Take no more records: `put` raises ProducerClosedError, also where it waits. What was taken is still sent."""
        self._engine.post(self._engine.value.close)
