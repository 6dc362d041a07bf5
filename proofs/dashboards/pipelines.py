"""`efo pipeline` in the proof: one that keeps up, and one that may read only a few records at a time."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx2
import trio

from efo_service.workers.process import efo_command
from proofs.dashboards.programs import Program
from proofs.dashboards.service import Service
from proofs.dashboards.verdict import Expectation
from proofs.ports import free_ports

PIPELINE: Final = "efo-pipeline"
SLOW_PIPELINE: Final = "efo-pipeline-slow"
_START_SECONDS: Final = 180.0
EXPECTATIONS: Final = (
    Expectation(PIPELINE, frozenset({"EfoPipelineStalled"}), frozenset({"EfoPipelineLagHigh"})),
    Expectation(SLOW_PIPELINE, frozenset({"EfoPipelineLagHigh"}), frozenset()),
)


class Pipeline:
    """`efo pipeline` on the log of a service. `port`: of its metrics."""

    def __init__(self, job: str, source: Service, directory: Path, *, max_records: int | None = None) -> None:
        (self.port,) = free_ports(1)
        self.job = job
        own = directory / job
        environment = {
            "EFO_KINESIS__STREAM": source.stream,
            "EFO_RELAY__DIRECTORY": str(source.log),
            "EFO_PIPELINE__READER": job,
            "EFO_PIPELINE__OUTPUT": str(own / "output"),
            "EFO_PIPELINE__CHECKPOINT": str(own / "checkpoint"),
            "EFO_PIPELINE__TRIGGER_SECONDS": "3",
            "EFO_PIPELINE__METRICS_PORT": str(self.port),
            "EFO_PIPELINE__MASTER": "local[1]",
        }
        if max_records is not None:
            environment["EFO_PIPELINE__MAX_RECORDS"] = str(max_records)
        self.program = Program(job, efo_command("pipeline"), own, environment)

    async def start(self) -> None:
        """Start the process. Spark needs some 15 s until its first micro-batch."""
        await self.program.start()

    async def has_metrics(self) -> None:
        """Wait until a micro-batch has ended. Raises ProgramError, and trio.TooSlowError."""
        with trio.fail_after(_START_SECONDS):
            async with httpx2.AsyncClient(timeout=10) as client:
                while True:
                    self.program.check()
                    with suppress(httpx2.HTTPError):
                        if "efo_pipeline_lag" in (await client.get(f"http://127.0.0.1:{self.port}/metrics")).text:
                            return
                    await trio.sleep(0.5)

    def suspend_spark(self) -> None:
        """Suspend Spark's Java: no micro-batch ends, and Python still serves the metrics."""
        self.program.signal(signal.SIGSTOP, *self.program.pids("java"))
