"""The log on an object store as the output of a run."""

from __future__ import annotations

import trio

from efo_service.demo.load import FoundRecord
from efo_service.log.topic import log_files, read_topic
from efo_service.object_store.url import parse_url
from efo_service.relay.errors import SinkError
from proofs.e2e.config import object_log
from proofs.local_servers.object_stores import BUCKET, Running


class ObjectLogOutput:
    """See `Output`. `server`: the store. It is read directly, whatever the relays go through."""

    name = "log"
    pipeline_config = ""
    servers = ()
    max_relay_restarts = 0
    max_spark_restarts = 20

    def __init__(self, server: Running, topic: str) -> None:
        self._server = server
        self._topic = topic
        self.log = log_files(parse_url(self._url, server.options()))
        self.relay_config = self.config()

    @property
    def _url(self) -> str:
        return f"{self._server.scheme}://{BUCKET}/e2e/log"

    def config(self, proxy: str | None = None) -> str:
        """Return the tables of the relays. `proxy`: the URL by which they reach the store."""
        return object_log(self._url, self._server.options(proxy))

    async def prepare(self) -> None:
        """Do nothing: the relay creates the log."""

    async def count(self) -> int:
        """Return how many records the log holds so far."""
        return await trio.to_thread.run_sync(self._count)

    def _count(self) -> int:
        try:
            topic = read_topic(self.log, self._topic)
            return sum(topic.partition(number).end() or 0 for number in topic.catalog.shards)
        except SinkError:  # the service has not written yet
            return 0

    async def rows(self) -> list[FoundRecord]:
        """Return all records, as a reader has them."""
        return await trio.to_thread.run_sync(self._rows)

    def _rows(self) -> list[FoundRecord]:
        rows: list[FoundRecord] = []
        topic = read_topic(self.log, self._topic)
        for number in topic.catalog.shards:
            partition = topic.partition(number)
            for batch in partition.parts(partition.start(), partition.end() or 0, allow_gaps=False):
                columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
                for offset, key, data in zip(*columns, strict=True):
                    rows.append(FoundRecord((0.0, number, offset), key.decode(), data))
        return rows
