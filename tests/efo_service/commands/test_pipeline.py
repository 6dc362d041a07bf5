from __future__ import annotations

import json
import socket
from urllib.request import urlopen

import pytest

from efo_service.commands.pipeline import _metrics
from efo_service.config.settings import Settings
from efo_service.errors import UnavailableError
from proofs.ports import free_port

REPORT = {"query": "records", "batch_id": 0, "rows": 7, "rows_written": 5, "late_rows": 0, "seconds": 0.5, "lag": 3}


def settings(port: int) -> Settings:
    return Settings(kinesis={"stream": "orders"}, pipeline={"metrics_port": port})


def test_metrics_port_serves_the_pipelines_metrics() -> None:
    port = free_port()
    with _metrics(settings(port)) as measure:
        measure(REPORT)
        text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        assert json.load(urlopen(f"http://127.0.0.1:{port}/status"))["queries"]["records"]["lag"] == 3
    assert 'efo_pipeline_rows_total{efo_pipeline_query="records"} 7.0' in text
    assert 'efo_pipeline_rows_written_total{efo_pipeline_query="records"} 5.0' in text
    assert 'efo_pipeline_lag{efo_pipeline_query="records"} 3.0' in text


def test_a_metrics_port_in_use_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"metrics_port {port}"), _metrics(settings(port)):
            pass


def test_metrics_port_0_serves_no_metrics() -> None:
    with _metrics(settings(0)) as measure:
        measure(REPORT)
