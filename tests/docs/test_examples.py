"""The Python, TOML and JSON of all pages: it runs as it stands there. test_consuming.py runs the bodies of handlers."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import tomllib

import pytest

import efo
from efo.model import Record
from efo.testing.faults.script import load_faults
from efo_service.config.loading import load_all
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition
from efo_service.spark.session import spark_session
from proofs.e2e.kafka.broker import CONNECTOR
from proofs.local_servers.dynamodb import credentials, serve_ministack
from proofs.paths import TOOLS
from tools.docs import ledger
from tools.docs.examples import examples
from tools.docs.pages import read_pages

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.page

TIMEOUT = 120
READERS = TOOLS / "readers"
EXAMPLES = list(examples(read_pages()))
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def of_kind(kind):
    return [pytest.param(one, id=one.place) for one in EXAMPLES if one.kind == kind]


@pytest.mark.parametrize("example", of_kind("program"))
def test_the_program_ends_well(example, reader, tmp_path):
    command = [sys.executable, "-c", example.block.text]
    result = subprocess.run(
        command, cwd=tmp_path, env=reader, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert result.returncode == 0, result.stderr
    ledger.note(example.place)


@pytest.mark.e2e
@pytest.mark.parametrize("example", of_kind("until"))
def test_the_program_prints_until_it_is_interrupted(example, reader, tmp_path):
    lines = int(re.fullmatch(r"example: until (\d+) lines", example.block.mark)[1])
    (tmp_path / "program.py").write_text(example.block.text)
    command = [sys.executable, "program.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            printed = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    assert all(printed), error.decode()
    assert process.returncode in {0, 1, -signal.SIGINT}  # 1: Python reports KeyboardInterrupt
    assert b"Error" not in error.replace(b"KeyboardInterrupt", b"")
    ledger.note(example.place)


@pytest.mark.parametrize("example", of_kind("tests"))
def test_the_tests_pass(example, pytester):
    pytester.makepyfile(example.block.text)
    count = len(re.findall(r"^(?:async )?def test_", example.block.text, re.MULTILINE))
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=count)
    ledger.note(example.place)


@pytest.mark.parametrize("example", [*of_kind("settings"), *of_kind("faults")])
def test_the_file_is_valid(example, tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("EFO_")]:
        monkeypatch.delenv(name)
    text = example.block.text
    if store := re.search(r'^store = "(postgres|redis)"', text, re.MULTILINE):
        scheme = {"postgres": "postgresql", "redis": "redis"}[store[1]]
        monkeypatch.setenv("EFO_LEASES__URL", f"{scheme}://efo@127.0.0.1/0")  # a password is never in the file
    (file := tmp_path / "efo.toml").write_text(
        text if "kinesis]" in text or example.kind == "faults" else f'[kinesis]\nstream = "orders"\n{text}'
    )
    assert load_faults(file) if example.kind == "faults" else load_all(file).streams
    ledger.note(example.place)


def test_python_that_is_not_run_compiles():
    for example in EXAMPLES:
        if example.kind == "left_out" and example.block.language in {"python", "py"}:
            compile(example.block.text, example.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("example", [*of_kind("json"), *of_kind("pyproject")])
def test_the_data_is_valid(example):
    text = example.block.text
    if example.kind == "pyproject":
        assert tomllib.loads(text)
        ledger.note(example.place)
        return
    try:
        json.loads(text)
    except ValueError:
        [json.loads(line) for line in text.splitlines()]
    ledger.note(example.place)


@pytest.mark.parametrize("example", of_kind("dynamodb"))
async def test_the_program_beside_dynamodb_ends_well(example, servers, monkeypatch):
    url = servers.url(serve_ministack)
    with credentials():
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", url)
        names = {"efo": efo}
        exec(f"async def example():\n{textwrap.indent(example.block.text, '    ')}", names)  # noqa: S102 - our own page
        await names["example"]()
    ledger.note(example.place)


def write_log(directory):
    """Write a log of the topic `orders`."""
    writer = open_partition(DiskFiles(directory / "var" / "log"), "orders", "orders", "shardId-000000000000", time.time)
    writer.append([Record("1", time.time(), b"an order", "customer-1")])
    writer.close()


@pytest.mark.skipif(not READERS.is_dir(), reason="pandas, Polars and DuckDB are not installed: run `make readers`")
@pytest.mark.parametrize("example", of_kind("readers"))
def test_the_program_beside_a_log_ends_well(example, tmp_path, monkeypatch):
    write_log(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(READERS))
    code = f"{example.block.text}\nprint(len(globals().get('orders', [1])))"  # each reads the one record of the log
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (result.returncode, result.stdout.splitlines()[-1:]) == (0, ["1"]), result.stderr
    ledger.note(example.place)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A session in a directory with a log of the topic `orders`."""
    directory = tmp_path_factory.mktemp("spark")
    write_log(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        with spark_session("the examples", quick=True, jars=sorted(CONNECTOR.glob("*.jar"))) as session:
            yield session


@pytest.mark.spark
@pytest.mark.skipif(
    ledger.VARIABLE not in os.environ, reason="a start of Spark takes long: `make docs` runs the examples"
)
@pytest.mark.parametrize("example", of_kind("spark"))
def test_the_query_of_spark_has_kafkas_columns(example, spark):
    if 'format("kafka")' in example.block.text and not any(CONNECTOR.glob("spark-sql-kafka*.jar")):
        pytest.skip("Spark's connector for Kafka is not installed: run `make kafka-install` (needs Maven and Java 17)")
    frame = eval(example.block.text, {"spark": spark, "servers": "127.0.0.1:9092"})  # noqa: S307 - our own page
    assert frame.isStreaming
    assert frame.columns == COLUMNS
    ledger.note(example.place)
