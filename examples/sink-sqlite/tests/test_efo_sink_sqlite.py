"""The sink does what efo's sinks must do."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from efo_sink_sqlite import open_sqlite

from efo.errors import ConfigurationError
from efo_service.relay.conformance import CHECKS, STREAM
from efo_service.relay.mapping import Message
from efo_service.relay.plugins import SinkContext


class SqliteUnderTest:
    owns_positions = True

    def __init__(self, directory: Path) -> None:
        self._file = directory / "records.sqlite"

    def open(self):
        context = SinkContext(stream=STREAM, application="app", topic="topic", worker_id="w-1")
        return open_sqlite({"file": str(self._file)}, context)

    def read(self, shard_id: str) -> list[Message]:
        query = "SELECT key, value, timestamp, headers FROM record WHERE shard = ? ORDER BY rowid"
        with sqlite3.connect(self._file) as connection:
            rows = connection.execute(query, (shard_id,)).fetchall()
        connection.close()
        return [
            Message(
                key and key.encode(), value, at, [(name, text and text.encode()) for name, text in json.loads(headers)]
            )
            for key, value, at, headers in rows
        ]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_conforms(check, tmp_path):
    await check(SqliteUnderTest(tmp_path))


@pytest.mark.parametrize("options", [{}, {"file": 3}, {"file": "x", "flie": "y"}])
def test_wrong_options_are_refused(options):
    context = SinkContext(stream=STREAM, application="app", topic="topic", worker_id="w-1")
    with pytest.raises(ConfigurationError, match=r"needs \[relay.options\] file"):
        open_sqlite(options, context)
