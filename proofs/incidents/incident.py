"""An incident: a service that relays a trickle of records, a fault, and when each surface shows it.

    @cases.case("not ready within 10 s, with the path")
    def the_disk_is_full() -> Outcome:
        with running(RELAY__SINK="log") as one:
            one.play(fill_the_disk, Expected("no space", "sink_outage_began", alert="EfoShardsUncommitted"))
            free_the_disk()
            return one.outcome()

`play` fails an incident of which a surface does not tell in time; `outcome` waits until all records have arrived.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from efo.errors import EfoError
from efo.testing import FakeKinesisThread
from efo_service.log.inspection import inspect_topic
from efo_service.log.topic import log_files
from efo_service.object_store.url import StoreUrl
from proofs.edges.service import STREAM, Service, serving
from proofs.incidents.alerts import Scrape, minutes_until
from proofs.peers.process_tree import descendants
from proofs.situations.situation import CANARY, Outcome

LIMIT: Final = 10.0
"""Seconds within which each surface must tell."""
_SHOWN: Final = 160
_GROWTH_SECONDS: Final = 3.0
"""Between two scrapes, to see what grows."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What an operator must be reported. All are parts of texts, searched as regular expressions.

    `problem`: of a problem in /status. `log`: the name of a line of the log. `metric`: of a line of /metrics. `alert`:
    the name of one that must fire; None: a page is not needed. `obstacle`: of /readyz, which must be 503; None: as
    `problem`; empty: the service stays ready. `ends`: the process ends, with this exit status, and nothing else tells.
    """

    problem: str = ""
    log: str = "not_ready"
    metric: str = r"efo_worker_ready\{.*\} 0"
    alert: str | None = None
    obstacle: str | None = None
    ends: int | None = None


@dataclass(slots=True)
class Reported:
    """What was reported. `after`: seconds until each surface did. `texts`: what it said. `missing`: the others."""

    after: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


class Incident:
    """A running service with its trickle. `arrived`: returns how many different records are at the sink."""

    def __init__(self, kinesis: FakeKinesisThread, service: Service, arrived: Callable[[], int]) -> None:
        self.kinesis = kinesis
        self.service = service
        self.put = 0
        self.played: list[Reported] = []
        self._arrived = arrived
        self._ends = threading.Event()
        self._trickle = threading.Thread(target=self._put, daemon=True)
        self._notes: list[str] = []

    def _put(self) -> None:
        while not self._ends.is_set():
            self.put_one(b"%s %d" % (CANARY.encode(), self.put))
            time.sleep(0.25)

    def put_one(self, data: bytes) -> tuple[str, str]:
        """Put a record. Return its shard and its sequence number."""
        found = self.kinesis.put(STREAM, f"{CANARY}-{self.put}", data)
        self.put += 1
        return found

    def start(self) -> None:
        """Begin the trickle, and wait until the service is ready and the first records have arrived."""
        if not self.service.url:
            raise TimeoutError(f"the service does not serve; it has ended with {self.service.process.poll()}")
        self._trickle.start()
        if not self.until(lambda: self.readyz()[0] == 200 and self.arrived() > 0, 60):
            raise TimeoutError(f"the service did not become ready: {self.readyz()}")

    def stop_trickle(self) -> None:
        """Put no more records."""
        self._ends.set()
        if self._trickle.is_alive():
            self._trickle.join()

    def restart(self) -> None:
        """End the service, if it runs, and start another one with the same settings."""
        self.service.stop()
        self.service.start()

    def note(self, text: str) -> None:
        """Add to what is reported of the incident."""
        self._notes.append(text)

    # --- what is seen ------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], Any], seconds: float) -> Any:
        """Wait until a condition is true; return its last value."""
        deadline = time.monotonic() + seconds
        while not (value := condition()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return value

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an answer; 0 and nothing if there is none."""
        try:
            with urllib.request.urlopen(self.service.url + path, timeout=5) as answer:  # noqa: S310 - of this host
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def readyz(self) -> tuple[int, list[str]]:
        """Return the status of /readyz, and its problems."""
        status, body = self.get("/readyz")
        return status, list(json.loads(body)["problems"]) if body else []

    def status(self) -> dict[str, Any]:
        """Return /status."""
        return dict(json.loads(self.get("/status")[1] or "{}"))

    def scrape(self) -> Scrape:
        """Return /metrics."""
        status, body = self.get("/metrics")
        return Scrape(time.monotonic(), body if status else None)

    def arrived(self) -> int:
        """Return how many records are at the sink."""
        with suppress(EfoError, OSError):
            return self._arrived()
        return 0

    # --- the play ----------------------------------------------------------------------------------------------------

    def play(self, begin: Callable[[], object], expected: Expected, limit: float = LIMIT) -> Reported:
        """Begin a fault, and wait until each surface shows what is expected of it."""
        healthy = self.scrape()
        known = len(self.service.lines)
        begin()
        started = time.monotonic()
        reported = Reported()
        looks: dict[str, Callable[[], str | None]] = {
            "readyz": lambda: self._obstacle(expected),
            "status": lambda: _matching(expected.problem, self.status().get("problems", [])),
            "metrics": lambda: _matching(expected.metric, self.get("/metrics")[1].splitlines()),
            "log": lambda: _matching(
                expected.log,
                (f"{line.pop('event', '')}: {line}" for line in self._lines(known)),
            ),
        }
        if not expected.problem:
            del looks["status"]  # what an operator has decided is no problem: its metric, alert and line tell it
        if expected.ends is not None:
            looks = {"exit": lambda: self._ended(expected.ends)}
        while len(reported.after) < len(looks) and time.monotonic() < started + 3 * limit:
            for surface, look in looks.items():
                if surface not in reported.after and (text := look()):
                    reported.after[surface] = time.monotonic() - started
                    reported.texts[surface] = text
            time.sleep(0.1)
        reported.missing = [name for name in looks if reported.after.get(name, 4 * limit) > limit]
        if expected.alert is not None:
            self._await_alert(expected.alert, healthy, reported)
        self.played.append(reported)
        return reported

    def _lines(self, known: int) -> list[dict[str, Any]]:
        return [dict(line) for line in list(self.service.lines)[known:]]

    def _obstacle(self, expected: Expected) -> str | None:
        status, problems = self.readyz()
        if expected.obstacle == "":
            return "ready" if status == 200 else None
        return _matching(expected.obstacle or expected.problem, problems) if status != 200 else None

    def _ended(self, status: int | None) -> str | None:
        return f"exit {status}" if self.service.process.poll() == status else None

    def _await_alert(self, alert: str, healthy: Scrape, reported: Reported) -> None:
        first = self.scrape()
        time.sleep(_GROWTH_SECONDS)
        minutes = minutes_until(alert, healthy, first, self.scrape())
        reported.texts["alert"] = f"{alert} after {minutes} min"
        if minutes is None:
            reported.missing.append(alert)

    def outcome(self, *, is_right: bool = True, seconds: float = 60.0) -> Outcome:
        """Wait until all records have arrived; return what was reported and lost."""
        self.stop_trickle()
        self.until(lambda: self.arrived() >= self.put, seconds)
        lost = self.put - self.arrived()
        missing = [name for reported in self.played for name in reported.missing]
        slowest = max((after for reported in self.played for after in reported.after.values()), default=0.0)
        texts = [
            f"{name}{f' {reported.after[name]:.1f} s' if name in reported.after else ''}: {text[:_SHOWN]}"
            for reported in self.played
            for name, text in reported.texts.items()
        ]
        did = "; ".join([*texts, *self._notes, *(f"{name} reported nothing in time" for name in missing)])
        counts = {"slowest_s_worst": round(slowest, 1), "lost": max(0, lost)}
        return Outcome(f"{did}; {lost} lost", is_right and not missing and lost <= 0, counts)


def _matching(pattern: str, texts: Any) -> str | None:
    return next((text for text in texts if re.search(pattern, text)), None)


def signalled(program: str, number: int) -> None:
    """Send a signal to the processes of this name that this one has started."""
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == program:
                os.kill(pid, number)


def in_log(root: Path | StoreUrl = Path("log"), topic: str = STREAM) -> int:
    """Return how many records a log has, which has each once."""
    state = inspect_topic(log_files(root), topic)
    return sum(partition.end - partition.start for partition in state.partitions)


def in_lines(file: str | Path) -> int:
    """Return how many different records a file of JSON lines has."""
    lines = [json.loads(line) for line in Path(file).read_text().splitlines() if line.endswith("}")]
    return len({tuple(map(tuple, line["headers"][1:4])) for line in lines})


@contextmanager
def running(
    arrived: Callable[[], int] = in_log, options: Mapping[str, object] | None = None, *, shards: int = 2, **more: object
) -> Iterator[Incident]:
    """Run `efo run` with a trickle of records, until the context is left. `options`, `more`: of the service."""
    logging.getLogger().setLevel(logging.WARNING)  # the fake's frames are of no interest
    with ExitStack() as stack:
        kinesis = stack.enter_context(FakeKinesisThread())
        kinesis.create_stream(STREAM, shards)
        service = stack.enter_context(serving(kinesis, **(options or {}), **more))
        one = Incident(kinesis, service, arrived)
        stack.callback(one.stop_trickle)
        one.start()
        yield one
