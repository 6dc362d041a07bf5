"""An OTLP receiver for tests, over HTTP or gRPC, that keeps what it gets."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs, logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2 as metrics,
    metrics_service_pb2_grpc as metrics_grpc,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace, trace_service_pb2_grpc as trace_grpc

_REQUESTS = {
    "/v1/traces": trace.ExportTraceServiceRequest,
    "/v1/metrics": metrics.ExportMetricsServiceRequest,
    "/v1/logs": logs.ExportLogsServiceRequest,
}


class Collector:
    """What arrived: the resources with their spans, metrics and log records."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[Any] = []

    def resources(self, signal: str) -> list[Any]:
        """Return what arrived of "spans", "metrics" or "logs"."""
        field = f"resource_{signal}"
        return [one for request in list(self.received) for one in getattr(request, field, ())]

    @property
    def spans(self) -> list[Any]:
        return [span for one in self.resources("spans") for scope in one.scope_spans for span in scope.spans]

    @property
    def metric_names(self) -> set[str]:
        scopes = [scope for one in self.resources("metrics") for scope in one.scope_metrics]
        return {metric.name for scope in scopes for metric in scope.metrics}

    @property
    def log_records(self) -> list[Any]:
        scopes = [scope for one in self.resources("logs") for scope in one.scope_logs]
        return [record for scope in scopes for record in scope.log_records]


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a span, a resource or a log record."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


@contextmanager
def http_collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.received.append(_REQUESTS[self.path].FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    collector = Collector()

    class Service(trace_grpc.TraceServiceServicer, metrics_grpc.MetricsServiceServicer, logs_grpc.LogsServiceServicer):
        def Export(self, request: Any, _context: object) -> Any:  # noqa: N802 - the name of the method in OTLP
            collector.received.append(request)
            kind = type(request).__name__.replace("Request", "Response")
            return next(getattr(module, kind) for module in (trace, metrics, logs) if hasattr(module, kind))()

    server = grpc.server(ThreadPoolExecutor(4))
    trace_grpc.add_TraceServiceServicer_to_server(Service(), server)
    metrics_grpc.add_MetricsServiceServicer_to_server(Service(), server)
    logs_grpc.add_LogsServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    collector.url = f"http://127.0.0.1:{port}"
    try:
        yield collector
    finally:
        server.stop(None).wait()
