"""Runs a client program on a server, and returns the windows that its samples show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofs.benchmarks.readers.samples import Sample, Window, parse, started_at, window
from proofs.paths import ROOT

EFO = "proofs.benchmarks.readers.efo_reader"
NAIVE = "proofs.benchmarks.naive_chain"
BOTOCORE = "proofs.benchmarks.readers.botocore_reader"
PATIENCE = 120.0
"""Seconds beyond its measurement after which a client is killed: it hangs, or its server does."""
_END = 1000
"""Characters of a failed client's stderr that are shown."""


class ClientError(Exception):
    """A client program ended, or printed no samples. The message has the end of its stderr."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Of one measurement: seconds of each window, how many follow each other, and seconds before the first.

    The warm-up begins when all processes of the client have read their first event, and so many `shards` together, if
    the client counts them.
    """

    seconds: float = 5.0
    windows: int = 3
    warm_up: float = 3.0
    shards: int = 0

    @property
    def total(self) -> float:
        """Seconds from the start of the warm-up to the end of the last window."""
        return self.warm_up + self.windows * self.seconds


def measure(
    program: str,
    served: dict[str, Any],
    consumer: str,
    timing: Timing,
    *,
    options: Sequence[str] = (),
    processes: int = 1,
    variables: Mapping[str, str] | None = None,
) -> list[Window]:
    """Run a client in a process and a directory of its own; return its windows. Raises ClientError."""
    samples: list[Sample] = []
    with client(program, [json.dumps(served), consumer, *options], timing.total + PATIENCE, variables) as process:
        assert process.stdout is not None
        for line in process.stdout:
            samples.append(parse(line))
            began = started_at(samples, processes, timing.shards)
            if began is not None and samples[-1].at > began + timing.total:
                starts = [began + timing.warm_up + n * timing.seconds for n in range(timing.windows)]
                return [window(samples, start, start + timing.seconds) for start in starts]
        raise ClientError(f"it ended after {len(samples)} samples, with exit code {process.wait()}")


@contextmanager
def client(
    program: str, arguments: list[str], seconds: float, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module in a temporary directory; kill it, and all that it started, at the end or after some seconds."""
    environment = os.environ | {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"} | dict(variables or {})
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with tempfile.TemporaryDirectory(prefix="efo-bench-") as directory, Path(directory, "stderr").open("w+b") as stderr:
        process = subprocess.Popen(  # noqa: S603 - a module of this package
            [sys.executable, "-m", program, *arguments],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        timer = threading.Timer(seconds, _kill, [process])
        timer.start()
        try:
            yield process
        except ClientError as error:
            stderr.seek(0)
            raise ClientError(f"{program}: {error}\n{stderr.read().decode(errors='replace')[-_END:]}") from None
        finally:
            timer.cancel()
            _kill(process)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
