"""Spark reads a log on a real object store: a batch, and a stream that goes on at its checkpoint after a compaction.

It has a process and a session of its own: Spark's Python workers get credentials from the environment of its start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid

import pytest

from efo_service.log.objects.files import ObjectFiles
from efo_service.log.reader_offsets import read_readers
from efo_service.object_store.remote import open_store
from efo_service.object_store.url import parse_url
from proofs.local_servers.object_stores import BUCKET, ENVIRONMENT, running, serve_versitygw
from tests.efo_service.log.objects.logs import TOPIC, Log

pytestmark = pytest.mark.spark

PROGRAM = """
import json, sys
from efo_service.object_store.remote import open_store
from efo_service.object_store.url import parse_url
from efo_service.spark.session import spark_session
from tests.efo_service.log.objects.logs import TOPIC, Log
from tests.efo_service.spark.conftest import retry_worker_timeouts

url, options, directory = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
log = Log(open_store(parse_url(url, options)))
writer = log.writer()
source = {"subscribe": TOPIC, "storeOptions": json.dumps(options)}
with spark_session("efo tests", quick=True) as spark:

    def batch():
        rows = spark.read.format("efo").options(**source).load(url).select("offset", "value").collect()
        return sorted((row.offset, row.value.decode()) for row in rows)

    def drain():
        frame = spark.readStream.format("efo").options(**source, startingOffsets="earliest", reader="billing").load(url)
        query = frame.select("value").writeStream.format("parquet").option("path", directory + "/out")
        query = query.option("checkpointLocation", directory + "/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(row.value.decode() for row in spark.read.parquet(directory + "/out").collect())

    results = []
    for _ in range(3):
        log.append(writer, 2)
    results += [retry_worker_timeouts(batch), retry_worker_timeouts(drain)]
    log.fold()
    for _ in range(2):
        log.append(writer, 2)
    results += [retry_worker_timeouts(drain)]
print(json.dumps(results))
"""


def test_a_query_reads_each_record_of_a_log_on_an_object_store_once(servers, tmp_path, monkeypatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server = running(servers.url(serve_versitygw))
    url = parse_url(f"s3://{BUCKET}/{uuid.uuid4().hex}", server.options())
    command = [sys.executable, "-c", PROGRAM, str(url), json.dumps(dict(url.options)), str(tmp_path)]
    ended = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    batch, first, second = json.loads(ended.stdout.splitlines()[-1])
    assert batch == [[number, f"value-{number}"] for number in range(6)]
    assert first == [f"value-{number}" for number in range(6)]
    assert second == [f"value-{number}" for number in range(10)]
    log = Log(open_store(url))
    log.check(10)
    assert [reader.name for reader in read_readers(ObjectFiles(log.memory), TOPIC)] == ["billing"]
