"""Which modules an import loads: the library must stay small and the command line quick."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"aiobotocore", "botocore", "h11", "opentelemetry", "pyarrow", "pydantic", "pyspark", "starlette", "trio"}


def modules_after(code: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after it ran this code."""
    script = f"{code}\nimport json, sys; json.dump(sorted(sys.modules), sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    return set(json.loads(done.stderr))


def test_efo_itself_loads_only_the_standard_library():
    loaded = {name.partition(".")[0] for name in modules_after("import efo")}
    assert loaded - {"efo", "__main__", "__mp_main__"} - sys.stdlib_module_names - modules_after("") == set()


def test_consume_loads_no_module_of_aws_and_none_of_metrics():
    """Those of AWS are loaded when a stream is opened by its name, aiobotocore only if it is needed."""
    loaded = modules_after("from efo import consume")
    unwanted = {"aiobotocore", "aiohttp", "asyncio", "boto3", "botocore", "httpx2", "opentelemetry", "pyarrow"}
    assert loaded & unwanted == set()


def test_the_library_loads_the_opentelemetry_api_but_not_the_sdk():
    loaded = modules_after("import efo.consumer.opening, efo.telemetry.observer")
    assert "opentelemetry.metrics" in loaded
    assert [name for name in loaded if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))] == []


def test_protobuf_is_loaded_with_the_first_aggregate():
    code = "import efo.consumer.opening; from efo.protocol.aggregation import AggregateEntry, aggregate"
    assert "google.protobuf" not in modules_after(code)
    assert "google.protobuf" in modules_after(code + "; aggregate([AggregateEntry('k', b'')])")


@pytest.mark.parametrize("arguments", [["--help"], ["version"]])
def test_help_and_version_load_no_heavy_module(arguments):
    loaded = modules_after(f"from efo_service.cli import call; assert call({arguments}) == 0")
    assert loaded & HEAVY == set()


def test_the_service_loads_only_the_sink_and_the_exporters_that_are_configured():
    loaded = modules_after("import efo_service.commands.run")
    unwanted = {"aiobotocore", "aiohttp", "confluent_kafka", "google", "httpx2", "numpy", "psycopg", "pyarrow", "redis"}
    assert loaded & unwanted == set()
    assert not any(name.startswith("opentelemetry.exporter.otlp") for name in loaded)


def test_the_package_for_spark_executors_loads_neither_trio_nor_aws():
    loaded = modules_after("import pyspark_efo, pyspark_kinesis")
    assert loaded & {"trio", "aiobotocore", "botocore", "h2", "pydantic"} == set()


@pytest.mark.parametrize("module", ["efo_service.cli", "pyspark_efo"])
def test_an_applications_own_package_named_service_is_left_alone(module, tmp_path, monkeypatch):
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "__init__.py").write_text("raise SystemExit('the application was imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "service" not in modules_after(f"import {module}")
