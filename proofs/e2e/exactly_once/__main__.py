"""Kills the workers of examples/exactly-once under load, and compares their databases with what was put.

The last line is one JSON object: for each database the kills, the records, and those that are lost, repeated, or out of
the order of their key. Exit status 0 if there are none, 69 if a server or a package is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from efo.testing import FakeKinesisThread, FakeSettings
from proofs.e2e.exactly_once.databases import DATABASES, Database, Orders
from proofs.local_servers.running import NotInstalledError

EXAMPLES: Final = Path(__file__).parents[3] / "examples" / "exactly-once"
STREAM: Final = "orders"
WORKERS: Final = 2
CUSTOMERS: Final = 40
STEP: Final = 0.2
PER_STEP: Final = 10
SPLITS: Final = 0.02
"""How likely a step splits a shard."""
MAX_SHARDS: Final = 8
PATIENCE: Final = 180.0
"""Seconds that the workers have for the rest, when nothing more is put and nobody is killed."""


class Load:
    """What was put: the numbers of each customer's orders."""

    def __init__(self, fake: FakeKinesisThread, rng: random.Random) -> None:
        self._fake = fake
        self._rng = rng
        self.put: list[tuple[str, int]] = []

    def step(self) -> None:
        """Put some orders, and sometimes split a shard."""
        orders = [(f"customer-{self._rng.randrange(CUSTOMERS)}", len(self.put) + n) for n in range(PER_STEP)]
        self._fake.put_many(STREAM, [(customer, str(number).encode()) for customer, number in orders])
        self.put += orders
        if self._rng.random() < SPLITS and len(self._fake.open_shards(STREAM)) < MAX_SHARDS:
            self._fake.split(STREAM, self._rng.choice(list(self._fake.open_shards(STREAM))))


def prove(name: str, kills: int, rng: random.Random) -> dict[str, int]:
    """Return the figures of one database."""
    settings = FakeSettings(consumer_creating=0.0)
    with (
        tempfile.TemporaryDirectory(prefix="efo-exactly-once-") as path,
        DATABASES[name](Path(path)) as database,
        FakeKinesisThread(settings=settings) as fake,
    ):
        fake.create_stream(STREAM, 3)
        load = Load(fake, rng)
        command = [sys.executable, str(EXAMPLES / f"{name}_orders.py"), STREAM, database.argument]
        environment = {**os.environ, **fake.environment, **database.environment}
        workers = [_Worker(command, environment, Path(path), number) for number in range(WORKERS)]
        try:
            for _ in range(kills):
                end = time.monotonic() + rng.uniform(1.0, 4.0)
                while time.monotonic() < end:
                    load.step()
                    time.sleep(STEP)
                rng.choice(workers).kill()
            _wait(database, len(load.put), workers)
        finally:
            for worker in workers:
                worker.process.kill()
        return {"kills": kills, "records": len(load.put), **_compare(database, load.put)}


class _Worker:
    """A worker process, started again after each kill."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], path: Path, number: int) -> None:
        self._command = command
        self._environment = environment
        self._path = path
        self._log = path / f"worker-{number}.log"
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, cwd=self._path, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """Kill it by SIGKILL, and start it again."""
        self.process.kill()
        self.process.wait()
        self._start()

    def check(self) -> None:
        """Raise RuntimeError if it has ended by itself."""
        if self.process.poll() is not None:
            raise RuntimeError(f"a worker has ended by itself: {self._log.read_text()[-3000:]}")


def _wait(database: Database, count: int, workers: Sequence[_Worker]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for worker in workers:
            worker.check()
        stored = (
            len(database.orders()) if database.orders else sum(database.counts().values() if database.counts else ())
        )
        if stored >= count:
            time.sleep(5.0)  # what would be stored twice
            return
        time.sleep(1.0)


def _compare(database: Database, put: Orders) -> dict[str, int]:
    if database.counts is not None:
        expected, counts = Counter(customer for customer, _ in put), database.counts()
        return {"lost": (expected - counts).total(), "repeated": (counts - expected).total(), "disordered": 0}
    stored = database.orders() if database.orders else []
    disordered = 0
    last: dict[str, int] = {}
    for customer, number in stored:
        disordered += number < last.get(customer, -1)
        last[customer] = number
    times = Counter(stored)
    return {
        "lost": len(set(put) - times.keys()),
        "repeated": sum(count - 1 for count in times.values()),
        "disordered": disordered,
    }


def main() -> int:
    """Run what the arguments choose; return the exit status."""
    parser = argparse.ArgumentParser(prog="make exactly-once", description=__doc__)
    parser.add_argument("databases", nargs="*", choices=[*DATABASES, []], help="by default all that are installed")
    parser.add_argument("--kills", type=int, default=20, help="of each database (default: 20)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    results: dict[str, dict[str, int]] = {}
    missing: list[str] = []
    for name in options.databases or DATABASES:
        if name == "sqlalchemy" and find_spec("sqlalchemy") is None:
            missing.append("sqlalchemy: pip install sqlalchemy")
            continue
        try:
            results[name] = prove(name, options.kills, random.Random(f"{options.seed} {name}"))  # noqa: S311 - no secret
        except NotInstalledError as error:
            missing.append(f"{name}: {error}")
            continue
        print(f"{name:12}", *(f"{what} {count}" for what, count in results[name].items()), flush=True)
    print("\n".join(missing))
    is_right = all(not (r["lost"] or r["repeated"] or r["disordered"]) for r in results.values())
    print(json.dumps({"databases": results, "missing": missing}))
    return 1 if not is_right else os.EX_UNAVAILABLE if missing else os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
