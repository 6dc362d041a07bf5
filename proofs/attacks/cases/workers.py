"""Several worker processes: their own ports, and what becomes of one that is killed or stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from proofs.attacks.cases.port import GET, HELD, PREFACE, flood, frame, in_threads
from proofs.attacks.service import STREAM, Service, serving, until
from proofs.situations.situation import Cases, Outcome

cases = Cases("port", seconds=240)

# --- several workers ------------------------------------------------------------------------------------------------


def _worker_ports(service: Service) -> list[int]:
    return [service.port + 1, service.port + 2]


def _workers_outcome(service: Service, did: str, is_right: object) -> Outcome:
    """Return the outcome of several processes: their loops are not measured, and /livez is the supervisor's."""
    service._blocked_ms = 0.0
    return service.outcome(did, is_right)


@contextmanager
def _several() -> Iterator[Service]:
    with serving(workers=2) as service:
        service.measure = lambda: 0.0  # type: ignore[method-assign] # the supervisor is not metered
        yield service


@cases.case("both ports refuse HTTP/2, and stay ready", name="workers: HTTP/2 and idle connections at their own ports")
def _() -> Outcome:
    with _several() as service:
        with service.attacked(), ExitStack() as stack:
            answers = []
            for port in _worker_ports(service):
                for _ in range(300):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                    connection.sendall(PREFACE + frame(4))
                    answers.append(connection.recv(12))
            time.sleep(3)
            ready = service.address.get("/readyz")[0]
        return _workers_outcome(service, f"{answers}, ready {ready}", answers == [b"HTTP/1.1 505"] * 2 and ready == 200)


def _pids(service: Service) -> list[int]:
    status = json.loads(service.address.get("/status")[1])
    return [worker["pid"] for worker in status["workers"] if worker["pid"]]


@cases.case("it is restarted, and every record is relayed once", name="workers: one is killed")
def _() -> Outcome:
    with _several() as service:
        with service.attacked():
            victim = _pids(service)[0]
            os.kill(victim, signal.SIGKILL)
            restarted = until(lambda: len(_pids(service)) == 2 and victim not in _pids(service), 20)
            until(lambda: service.address.get("/readyz")[0] == 200, 20)
        return _workers_outcome(service, "restarted" if restarted else "not restarted", restarted)


@cases.case(
    "/status and /readyz say which one; when it goes on, every record is relayed once",
    name="workers: one is stopped and continued",
)
def _() -> Outcome:
    """While it is stopped, it keeps the locks of its shards in the log: another worker takes them only afterwards."""
    with _several() as service:
        with service.attacked():
            victim = _pids(service)[0]
            os.kill(victim, signal.SIGSTOP)
            reported = until(lambda: "not ready" in service.address.get("/readyz")[1], 20)
            status = service.address.get("/status")[0]
            time.sleep(8)  # its leases expire
            os.kill(victim, signal.SIGCONT)
            again = until(lambda: service.address.get("/readyz")[0] == 200, 120)
        outcome = _workers_outcome(service, f"reported {reported}, status {status}, ready again {again}", is_right=True)
        # Its leases are lost: that is right here.
        did = outcome.did
        right = reported and status == 200 and again and "the process ended" not in did and "ended with" not in did
        return Outcome(did, right and service.relayed >= service.put, {"leases_lost": 0})


@cases.case("the actions and the status are those of all; " + HELD, name="workers: many ask the supervisor at once")
def _() -> Outcome:
    with _several() as service:
        with service.attacked():
            heads = [GET.replace(b"/livez", path) for path in (b"/metrics", b"/status", b"/map")]
            with in_threads(20, lambda number: flood(service, b"", lambda _: heads[number % 3])):
                pass
            status = service.address.get("/status")
        return _workers_outcome(service, f"status {status[0]}", status[0] == 200 and STREAM in status[1])
