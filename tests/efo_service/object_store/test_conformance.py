"""Tests that every object store must pass: the one in memory, and real servers of each protocol."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from efo_service.log.objects import keys
from efo_service.object_store.memory import MemoryStore
from efo_service.object_store.probe import probe
from efo_service.object_store.remote import open_store
from efo_service.object_store.store import ChangedError, ExistsError, Listed, Store, UnchangedError, Version
from efo_service.object_store.url import parse_url
from efo_service.relay.errors import SinkError, SinkFencedError
from proofs.local_servers.object_stores import BUCKET, ENVIRONMENT, SERVERS, running
from tests.efo_service.log.objects.logs import Log, make_records, prepare


@pytest.fixture(params=["memory", *SERVERS])
def open_client(request, monkeypatch) -> Callable[[], Store]:
    """Open clients of one new prefix."""
    if request.param == "memory":
        return MemoryStore().client
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server = running(request.getfixturevalue("servers").url(SERVERS[request.param]))
    url = parse_url(f"{server.scheme}://{BUCKET}/{uuid.uuid4().hex}/log", server.options())
    return lambda: open_store(url)


@pytest.fixture
def store(open_client) -> Store:
    return open_client()


def test_an_object_is_created_once(store) -> None:
    version = store.create("a/b", b"one")
    with pytest.raises(ExistsError):
        store.create("a/b", b"two")
    found = store.get("a/b")
    assert (found.content, found.size) == (b"one", 3)
    assert found.version.e_tag == version.e_tag
    assert found.modified > 1_600_000_000


def test_an_object_is_replaced_only_by_who_has_seen_its_content(store) -> None:
    first = store.create("a/b", b"one")
    second = store.replace("a/b", b"two", first)
    with pytest.raises(ChangedError):
        store.replace("a/b", b"three", first)
    assert store.get("a/b").content == b"two"
    store.replace("a/b", b"four", store.get("a/b").version)
    with pytest.raises(ChangedError):
        store.replace("a/b", b"five", second)
    assert store.head("a/b", 100).content == b"four"


def test_a_condition_on_an_object_that_does_not_exist_is_false(store) -> None:
    version = store.create("a/b", b"one")
    with pytest.raises((ChangedError, SinkError)):
        store.replace("a/c", b"two", version)
    assert store.get("a/c") is None


def test_the_first_bytes_of_an_object(store) -> None:
    store.create("a/b", b"0123456789")
    assert (store.head("a/b", 4).content, store.head("a/b", 4).size) == (b"0123", 10)
    assert store.head("a/b", 4096).content == b"0123456789"
    assert store.head("a/b", 4).version == store.get("a/b").version
    assert store.head("a/c", 4) is None
    assert store.get("a/c") is None


def test_an_object_whose_version_is_known_is_not_sent_again(store) -> None:
    written = store.create("a/b", b"one")
    with pytest.raises(UnchangedError):
        store.get("a/b", written)
    first = store.get("a/b").version
    with pytest.raises(UnchangedError):
        store.get("a/b", first)
    store.replace("a/b", b"two", first)
    assert store.get("a/b", first).content == b"two"
    store.delete(["a/b"])
    assert store.get("a/b", first) is None


def test_what_was_deleted_is_gone(store) -> None:
    store.create("a/b", b"one")
    store.delete(["a/b", "a/missing"])
    store.delete([])
    assert store.get("a/b") is None
    store.create("a/b", b"two")


def test_keys_and_folders_are_those_below_a_prefix(store) -> None:
    for key in ("a/1/x", "a/1/y", "a/10/x", "a/z", "b/1/x"):
        store.create(key, key.encode())
    assert sorted(store.keys("a/1/")) == [Listed("a/1/x", 5), Listed("a/1/y", 5)]
    assert sorted(store.keys("none/")) == []
    assert store.folders("") == ["a", "b"]
    assert store.folders("a/") == ["1", "10"]
    assert store.folders("none/") == []


def test_a_store_that_honours_conditions_passes_the_probe_and_keeps_nothing_of_it(store) -> None:
    has_generations = getattr(getattr(store, "url", None), "scheme", None) == "gs"
    assert not probe(store, keys.PROBES, has_generations=has_generations).keeps_versions
    assert list(store.keys(f"{keys.PROBES}/")) == []


@pytest.mark.parametrize("operation", ["create", "replace"])
def test_of_writers_at_the_same_time_exactly_one_succeeds(open_client, operation) -> None:
    clients = [open_client() for _ in range(6)]
    for number in range(10):
        key = f"race/{number}"
        version = clients[0].create(key, b"zero") if operation == "replace" else Version(None)
        barrier = threading.Barrier(len(clients))
        winners: list[bytes] = []

        def write(client, content: bytes, key=key, version=version, barrier=barrier, winners=winners) -> None:
            barrier.wait()
            with suppress(ExistsError, ChangedError):
                if operation == "create":
                    client.create(key, content)
                else:
                    client.replace(key, content, version)
                winners.append(content)

        threads = [threading.Thread(target=write, args=(client, b"%d" % at)) for at, client in enumerate(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [clients[0].get(key).content] == winners


@pytest.fixture
def log(store) -> Iterator[Log]:
    return Log(store)


def test_a_log_lives_in_the_store(log) -> None:
    """A writer, another that fences it, folds, a merge, an expiry and the cleaning."""
    first = log.writer()
    for count in (3, 2):
        log.append(first, count)
    second = log.writer()
    laid_out = prepare(first, make_records(1, 5))
    with pytest.raises(SinkFencedError):
        first.commit(laid_out)
    log.fold()
    with pytest.raises(SinkFencedError):
        first.commit(laid_out)
    log.append(second, 4)
    log.fold()
    log.check(9)
    log.merge()
    log.append(second, 1)
    log.check(10)
    log.expire()
    assert log.partition().bounds() == (9, 10)
    log.check(10)
