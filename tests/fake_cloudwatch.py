"""CloudWatch's side of PutMetricData over HTTP, in a thread: what a request says, as AWS decodes it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class FakeCloudWatch:
    """`requests`: the parsed bodies. `refusal`: status and error code of each response, None if metrics are taken.

    `body`: of each response, instead of what CloudWatch says.
    """

    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.refusal: tuple[int, str] | None = None
        self.body: bytes | None = None
        self.url = ""

    def metrics(self) -> dict[tuple[str, ...], dict]:
        """Return the last statistic set of each metric, by the values of its dimensions and its name."""
        return {
            (*(dimension["Value"] for dimension in one["Dimensions"]), one["MetricName"]): one
            for request in self.requests
            for one in request["MetricData"]
        }


@contextmanager
def serving() -> Iterator[FakeCloudWatch]:
    fake = FakeCloudWatch()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, reply = 200, {}
            if fake.refusal is not None:
                status, code = fake.refusal
                reply = {"__type": f"com.amazonaws.cloudwatch#{code}", "message": "it is refused"}
            else:
                fake.requests.append(json.loads(body))
            encoded = json.dumps(reply).encode() if fake.body is None else fake.body
            self.send_response(status)
            self.send_header("content-type", "application/x-amz-json-1.0")
            self.send_header("content-length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        fake.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
