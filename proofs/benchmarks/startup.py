"""Measures how long efo takes from the start of its process to its first record: `python -m proofs.benchmarks.startup`.

The server is `efo fake` over TLS in a process of its own. The fan-out consumer is registered, and every shard has a new
record. Time runs from before the process is made, by the machine's monotonic clock. Bytecode is compiled before, as
after an installation.

    import_ms                `import efo`, and `from efo import consume`, without the start of Python
    first_record_s           to the first record of any of 4 shards; "cold": without a lease table, "warm": with one
    restart_after_kill_s     from SIGKILL, 6 s after the last subscribe, until the new process has read all 4 shards
    all_100_shards_s         until each of 100 shards has been read; the leases exist
    efo_run_first_record_s   `efo run`, until the first record is written
    help_s                   `efo --help`

Each is the median of some trials. Times that end with `cpu_s` are the process's own CPU time: compare these on a busy
machine. Progress goes to stderr; the last line of stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from botocore.session import Session

APPLICATION = "startup"
STREAMS = {"few": 4, "many": 100}
PROGRAM = Path(__file__).with_name("startup_consumer.py")
TAKE_OVER_AFTER = 6.0
"""Seconds after which the service lets another subscription take over (AWS: 5 s), and one more."""
IMPORTS = """
import time
started = time.perf_counter()
import efo
efo_ms = (time.perf_counter() - started) * 1000
from efo import consume
print(efo_ms, (time.perf_counter() - started) * 1000)
"""

Figures = dict[str, float]


class Process:
    """A process whose lines of JSON are read. `started`: when it was made, by the monotonic clock."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.started = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def read(self) -> Any:
        """Return the next line, decoded."""
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"the process ended with exit code {self._process.wait()}")
        return json.loads(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def process(arguments: list[str], environment: dict[str, str]) -> Iterator[Process]:
    started = Process(arguments, environment)
    try:
        yield started
    finally:
        started.kill()


class Service:
    """The fake, and what a producer and an operator do with it."""

    def __init__(self, address: dict[str, Any]) -> None:
        self.environment = address["environment"]
        session = Session()
        session.set_credentials("fake", "fake")
        self._client = session.create_client(
            "kinesis", region_name="us-east-1", endpoint_url=address["url"], verify=address["ca_file"]
        )
        for stream in STREAMS:
            self._register(stream)

    def put(self, stream: str) -> None:
        """Put a record into each shard of a stream."""
        shards = self._client.list_shards(StreamName=stream)["Shards"]
        records = [
            {"Data": b"x", "PartitionKey": "x", "ExplicitHashKey": shard["HashKeyRange"]["StartingHashKey"]}
            for shard in shards
        ]
        self._client.put_records(StreamName=stream, Records=records)

    def _register(self, stream: str) -> None:
        arn = self._client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]
        self._client.register_stream_consumer(StreamARN=arn, ConsumerName=APPLICATION)
        names = {"StreamARN": arn, "ConsumerName": APPLICATION}
        while self._client.describe_stream_consumer(**names)["ConsumerDescription"]["ConsumerStatus"] != "ACTIVE":
            time.sleep(0.1)


def consumer(stream: str, leases: Path) -> list[str]:
    return [str(PROGRAM), stream, str(leases)]


class Trials:
    """The measurements. Each method makes one trial and returns its figures."""

    def __init__(self, service: Service, environment: dict[str, str], directory: Path) -> None:
        self._service = service
        self._environment = environment | service.environment
        self._directory = directory

    def imports(self) -> Figures:
        done = subprocess.run(  # noqa: S603 - this interpreter
            [sys.executable, "-c", IMPORTS], env=self._environment, check=True, capture_output=True, text=True
        )
        efo_ms, consume_ms = map(float, done.stdout.split())
        return {"import_ms": efo_ms, "import_consume_ms": consume_ms}

    def first_record(self) -> Figures:
        """Start twice: without leases, and when they exist. Let the first one's subscriptions grow old enough."""
        leases = self._directory / f"few-{time.monotonic_ns()}.sqlite"
        figures: Figures = {}
        for name in ("cold", "warm"):
            self._wait_for_take_over()
            self._service.put("few")
            with process(consumer("few", leases), self._environment) as program:
                first = program.read()
                last = [first, *(program.read() for _ in range(STREAMS["few"] - 1))][-1]
            figures[f"first_record_s.{name}"] = first["at"] - program.started
            figures[f"first_record_cpu_s.{name}"] = first["cpu"]
            figures[f"all_4_shards_s.{name}"] = last["at"] - program.started
        return figures

    def restart_after_kill(self) -> Figures:
        leases = self._directory / f"few-{time.monotonic_ns()}.sqlite"
        self._wait_for_take_over()
        self._service.put("few")
        with process(consumer("few", leases), self._environment) as program:
            _read_all(program, "few")
            self._wait_for_take_over()
            self._service.put("few")
            killed = time.monotonic()
            program.kill()
            with process(consumer("few", leases), self._environment) as restarted:
                last = _read_all(restarted, "few")
        return {"restart_after_kill_s": last - killed}

    def all_shards(self) -> Figures:
        leases = self._directory / "many.sqlite"
        self._service.put("many")
        if not leases.exists():
            with process(consumer("many", leases), self._environment) as program:
                _read_all(program, "many")
        self._wait_for_take_over()
        self._service.put("many")
        with process(consumer("many", leases), self._environment) as program:
            return {"all_100_shards_s": _read_all(program, "many") - program.started}

    def efo_run(self) -> Figures:
        self._wait_for_take_over()
        self._service.put("few")
        variables = {
            "EFO_KINESIS__STREAM": "few",
            "EFO_CONSUMER__APPLICATION": APPLICATION,
            "EFO_LEASES__PATH": str(self._directory / f"run-{time.monotonic_ns()}.sqlite"),
            "EFO_RELAY__SINK": "jsonl",
            "EFO_RELAY__JSONL_FILE": "-",
            "EFO_SERVICE__PORT": "0",
        }
        with process(["-m", "efo_service.cli", "run"], self._environment | variables) as service:
            service.read()
            return {"efo_run_first_record_s": time.monotonic() - service.started}

    def help(self) -> Figures:
        started = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "efo_service.cli", "--help"], env=self._environment, check=True, capture_output=True
        )
        return {"help_s": time.monotonic() - started}

    def _wait_for_take_over(self) -> None:
        time.sleep(TAKE_OVER_AFTER)


def _read_all(program: Process, stream: str) -> float:
    """Read a line for each shard of the stream; return the time of the last one."""
    return float([program.read() for _ in range(STREAMS[stream])][-1]["at"])


def measure(trial: Callable[[], Figures], count: int) -> Figures:
    """Return the medians of some trials. One before them compiles bytecode and fills the caches of the system."""
    trial()
    results = [trial() for _ in range(count)]
    figures = {name: round(statistics.median(result[name] for result in results), 3) for name in results[0]}
    for name, value in figures.items():
        values = "  ".join(f"{result[name]:.3f}" for result in results)
        print(f"{name:28} {value:9.3f}   {values}", file=sys.stderr, flush=True)
    return figures


def nested(figures: Figures) -> dict[str, Any]:
    """Return `{"a.b": 1}` as `{"a": {"b": 1}}`."""
    result: dict[str, Any] = {}
    for name, value in figures.items():
        outer, dot, inner = name.partition(".")
        if dot:
            result.setdefault(outer, {})[inner] = value
        else:
            result[outer] = value
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proofs.benchmarks.startup",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ("imports", "first_record", "restart_after_kill", "all_shards", "efo_run", "help")
    parser.add_argument("--trials", type=int, default=5, help="trials of each kind (default: 5)")
    parser.add_argument("--only", choices=names, action="append", help="measure only this; can be repeated")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(directory) / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        streams = ",".join(f"{name}:{shards}" for name, shards in STREAMS.items())
        serving = ["-m", "efo_service.cli", "fake", "--json", "--port", "0", "--streams", streams]
        with process(serving, environment) as server:
            trials = Trials(Service(server.read()), environment, Path(directory))
            figures: Figures = {}
            for name in options.only or names:
                figures |= measure(getattr(trials, name), options.trials)
    print(json.dumps({"trials": options.trials, **nested(figures)}))


if __name__ == "__main__":
    main()
