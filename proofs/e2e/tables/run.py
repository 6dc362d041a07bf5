"""The run of a table format: the end-to-end run with a table at its end, then the cases of schema evolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import trio

from proofs.e2e.kafka.output import KafkaOutput
from proofs.e2e.object_store.output import ObjectLogOutput
from proofs.e2e.run import STREAM, E2eOptions, run as run_e2e
from proofs.e2e.tables.formats import Name, Place
from proofs.e2e.tables.table import Table, run_on_spark
from proofs.local_servers.kafka import serve_kafka
from proofs.local_servers.object_stores import ENVIRONMENT, Running, running, serve_versitygw
from proofs.local_servers.postgres import serve_postgres

PARTS: Final = ("kills", "evolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run. `kills`: how many, by target. `parts`: some of PARTS."""

    records: int
    rate: float
    kills: Mapping[str, int]
    seed: int
    parts: tuple[str, ...]


class _TableKafka(KafkaOutput):
    """The topic, read by the jars of the table's Spark."""

    def __init__(self, place: Place, directory: Path) -> None:
        super().__init__(directory)
        self.pipeline_config = f'source = "kafka"\njars = "{place.jars}"'


class _TableLog(ObjectLogOutput):
    """The log on the store of the table, with the jars of the table's Spark."""

    def __init__(self, place: Place, store: Running) -> None:
        super().__init__(store, STREAM)
        self.pipeline_config = f'jars = "{place.jars}"'


def run(name: Name, options: Options, directory: Path, report: Callable[[str], None]) -> tuple[bool, dict[str, Any]]:
    """Run a format; return whether it passed, and its part of the result. Raises EfoError, NotInstalledError."""
    with mock.patch.dict("os.environ", ENVIRONMENT), ExitStack() as stack:
        store = running(stack.enter_context(serve_versitygw()))
        catalog = stack.enter_context(serve_postgres()) if name == "iceberg" else None
        place = Place(name, store.url, catalog)
        passed = True
        summary: dict[str, Any] = {}
        if "kills" in options.parts:
            passed, summary = trio.run(_kills, place, store, options, directory, report)
        if "evolution" in options.parts:
            report(f"{name}: schema evolution")
            with _broker(name) as servers:
                arguments = (name, store.url, catalog or "", servers)
                evolution = trio.run(partial(run_on_spark, place, "evolution", directory, *arguments, report=report))
            summary["schema_evolution"] = evolution
            passed = passed and all(case["passed"] for cases in evolution.values() for case in cases.values())
    return passed, summary


async def _kills(
    place: Place, store: Running, options: Options, directory: Path, report: Callable[[str], None]
) -> tuple[bool, dict[str, Any]]:
    output = _TableLog(place, store) if place.format == "delta" else _TableKafka(place, directory)
    kills = {"broker": 0, **options.kills}
    e2e = E2eOptions(records=options.records, rate=options.rate, kills=kills, seed=options.seed, directory=directory)
    table = Table(place, directory)
    result = await run_e2e(e2e, output, report, table)
    return result.passed, {**result.summary, **table.read_result}


@contextmanager
def _broker(name: Name) -> Iterator[str]:
    if name == "delta":
        yield ""
    else:
        with serve_kafka() as servers:
            yield servers
