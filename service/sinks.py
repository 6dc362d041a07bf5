"""The sink that the settings ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from efo.model import Checkpoint
from service.config import RelaySettings, Settings
from service.relay.dead_letter import DeadLetterSink
from service.relay.jsonlines import open_json_lines
from service.relay.log import LogSink
from service.relay.mapping import Extractor, load_extractor
from service.relay.sink import Sink

SYSTEMS: Final = {"log": "efo_log", "jsonl": "efo_jsonl", "kafka": "kafka"}
"""What metrics call each kind of sink (OpenTelemetry: messaging.system)."""


@asynccontextmanager
async def open_sink(settings: Settings) -> AsyncIterator[Sink]:
    """Open the sink of [relay], with its dead letters. Raises ConfigurationError, SinkError."""
    relay = settings.relay
    extract = load_extractor(relay.trace_extractor) if relay.trace_extractor else None
    async with _open(settings, extract) as sink:
        if relay.dead_letters is None:
            yield sink
        else:
            yield DeadLetterSink(sink, LogSink(relay.directory, relay.dead_letters, extract=extract), _tell)


@asynccontextmanager
async def _open(settings: Settings, extract: Extractor | None) -> AsyncIterator[Sink]:
    relay = settings.relay
    match relay.sink:
        case "log":
            yield LogSink(relay.directory, settings.topic, extract=extract)
        case "jsonl":
            path = None if writes_to_stdout(relay) else relay.jsonl_file
            async with open_json_lines(path, encoding=relay.jsonl_encoding, extract=extract) as sink:
                yield sink


def writes_to_stdout(relay: RelaySettings) -> bool:
    """Tell whether records go to stdout, so that nothing else may."""
    return relay.sink == "jsonl" and str(relay.jsonl_file) == "-"


def _tell(shard_id: str, record: Checkpoint, reason: str) -> None:
    structlog.get_logger().warning("record_refused", shard_id=shard_id, record=str(record), reason=reason)
