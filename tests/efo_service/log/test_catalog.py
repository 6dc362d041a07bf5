import contextlib
import os
import subprocess
import sys

import pytest

from efo.errors import ConfigurationError
from efo_service.log.catalog import (
    allocate_partition,
    partition_names,
    read_catalog,
    topics,
    uncatalogued_topics,
)
from efo_service.log.disk import DiskFiles
from efo_service.relay.errors import SinkError, TopicNotFoundError
from efo_service.relay.storage import lock

ALLOCATE = """
import sys
from pathlib import Path
from efo_service.log.catalog import allocate_partition
from efo_service.log.disk import DiskFiles
print("ready", flush=True)
sys.stdin.readline()
for shard in sys.argv[2:]:
    allocate_partition(DiskFiles(Path(sys.argv[1])), "t", "s", shard)
"""


def test_concurrent_processes_allocate_consistent_partitions(tmp_path) -> None:
    shards = [f"shard-{number}" for number in range(40)]
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", ALLOCATE, str(tmp_path), *order],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for order in (shards, shards[::-1], shards[20:] + shards[:20])
        ]
        for child in children:
            assert child.stdout.readline() == b"ready\n"
        for child in children:
            child.stdin.write(b"go\n")
            child.stdin.flush()
    assert [child.returncode for child in children] == [0, 0, 0]
    partitions = read_catalog(DiskFiles(tmp_path), "t").partitions
    assert set(partitions) == set(shards)
    assert sorted(partitions.values()) == list(range(40))


@pytest.mark.parametrize("topic", ["", ".", "..", ".hidden", "a/b", "a\n", "é", "x" * 250])
def test_an_invalid_topic_name_is_rejected(tmp_path, topic) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid topic name"):
        allocate_partition(DiskFiles(tmp_path), topic, "s", "x")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "this machine has no such directory.*check the path"),
        ("empty", "nor any other: it is no log, or empty.*check the path"),
        ("file", "it is a file, and a log is a directory"),
        ("log/orders", r"it is itself a topic of the log .*/log; use that path"),
    ],
)
def test_a_path_that_is_no_log_is_reported_with_what_it_is(tmp_path, path, message) -> None:
    allocate_partition(DiskFiles(tmp_path / "log"), "orders", "s", "x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(TopicNotFoundError, match=f"{path} has no topic 't'.*{message}"):
        read_catalog(DiskFiles(tmp_path / path), "t")


def test_a_catalog_that_is_no_file_is_rejected(tmp_path) -> None:
    allocate_partition(DiskFiles(tmp_path), "t", "s", "x")
    path = tmp_path / "t" / "catalog.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SinkError, match=r"catalog\.json: it is not a regular file"):
        read_catalog(DiskFiles(tmp_path), "t")


def test_a_root_that_is_a_file_raises_sink_error(tmp_path) -> None:
    (tmp_path / "log").touch()
    with pytest.raises(SinkError, match="Not a directory"):
        allocate_partition(DiskFiles(tmp_path / "log"), "t", "s", "x")


def test_a_lock_is_exclusive_until_it_is_closed(tmp_path) -> None:
    lock_file = lock(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        lock(tmp_path / "lock", wait=False)
    lock_file.close()
    lock(tmp_path / "lock", wait=False).close()


def test_a_directory_with_partitions_and_no_catalog_is_a_topic_that_lost_it(tmp_path) -> None:
    allocate_partition(DiskFiles(tmp_path), "whole", "s", "x")
    for path in ("whole/0", "lost/0", "again-lost/12", "empty", "notes/attic", ".hidden/0"):
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    (tmp_path / "file").touch()
    assert uncatalogued_topics(DiskFiles(tmp_path)) == ["again-lost", "lost"]
    assert topics(DiskFiles(tmp_path)) == ["whole"]


def test_partitions_are_in_the_order_of_their_numbers(tmp_path) -> None:
    for name in ("10", "9", "0", "123456789", "1234567890", "x", "1.tmp", "-1"):
        (tmp_path / name).mkdir()
    assert partition_names(DiskFiles(tmp_path.parent), tmp_path.name) == ["0", "9", "10", "123456789"]
    assert partition_names(DiskFiles(tmp_path), "missing") == []
