"""A proxy before an object store whose requests fail as those of a real one: late, refused, or with a lost answer."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

_HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "expect"})


@dataclass(slots=True)
class Faults:
    """Shares of requests with a fault. `down_until`: no request is answered before this time (`time.monotonic`).

    `refused`: answered with 503, and not done. `lost`: done, and not answered. `late`: not answered, and done up to
    `late_seconds` later. `slow_seconds`: most of the delay of each request.
    """

    rng: random.Random
    refused: float = 0.03
    lost: float = 0.03
    late: float = 0.02
    late_seconds: float = 5.0
    slow_seconds: float = 0.05
    down_until: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def next(self) -> str:
        """Return what happens to a request: ok, or the name of a fault."""
        if time.monotonic() < self.down_until:
            return "down"
        drawn = self.rng.random()
        for name in ("refused", "lost", "late"):
            drawn -= getattr(self, name)
            if drawn < 0:
                return name
        return "ok"


class _Server(ThreadingHTTPServer):
    """The proxy's server. `upstream`: host and port of the store. `late`: requests that are still to be made."""

    daemon_threads = True

    def __init__(self, upstream: str, faults: Faults) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.faults = faults
        self.late: list[threading.Timer] = []

    def handle_error(self, *_: object) -> None:
        """Print nothing: clients are killed while they send."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        faults = self.server.faults
        fault = faults.next()
        faults.counts[fault] += 1
        time.sleep(faults.rng.random() * faults.slow_seconds)
        self.close_connection = fault in {"down", "late", "lost"}
        match fault:
            case "down":
                pass
            case "refused":
                self._answer(503, {"Content-Type": "application/xml"}, b"<Error><Code>SlowDown</Code></Error>")
            case "late":
                timer = threading.Timer(faults.rng.random() * faults.late_seconds, self._forward, [body])
                timer.start()
                self.server.late.append(timer)
            case "lost":
                self._forward(body)
            case _:
                self._answer(*self._forward(body))

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.upstream, timeout=30)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        size = headers.get("Content-Length", "0") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815 - the names that BaseHTTPRequestHandler calls

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def proxy(url: str, faults: Faults) -> Iterator[str]:
    """Run a proxy before a server; yield its URL."""
    server = _Server(urlsplit(url).netloc, faults)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        for timer in server.late:
            timer.join()
        server.server_close()
        thread.join()
