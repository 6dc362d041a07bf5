"""Checks of a log on an object store: that it honours conditions, and that its topics can be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from efo_service.log.catalog import read_catalog
from efo_service.log.consistency import check_topic
from efo_service.log.objects import keys
from efo_service.log.objects.files import ObjectFiles
from efo_service.object_store.probe import probe
from efo_service.object_store.remote import open_store
from efo_service.object_store.store import Store
from efo_service.object_store.url import StoreUrl
from efo_service.operations.doctor.endpoint import through
from efo_service.operations.doctor.machine import in_thread
from efo_service.operations.doctor.running import Check, Outcome, failed, passed
from efo_service.relay.errors import LogOwnerError, TopicNotFoundError

STORE = "log store"


def object_log_checks(url: StoreUrl, topics: Mapping[str, str], stream: str, store: Store | None = None) -> list[Check]:
    """Return the checks. `topics`: by the names of their checks. `store`: opened if None.

    The first one writes a key of its own, and deletes it. The others write nothing.
    """
    remedy = f"check {url}, the credentials and the network"

    def opened() -> Store:
        return open_store(url) if store is None else store

    def look() -> Outcome:
        found = probe(opened(), keys.PROBES, has_generations=url.scheme == "gs")
        versions = (
            "; the bucket is versioned: set a rule that expires noncurrent versions" if found.keeps_versions else ""
        )
        return passed(f"{url} honours conditional writes{versions}{_way(url)}")

    return [
        Check(STORE, in_thread(look), remedy),
        *(
            Check(name, in_thread(partial(_topic, opened, topic, stream)), remedy, needs=(STORE,))
            for name, topic in topics.items()
        ),
    ]


def _way(url: StoreUrl) -> str:
    """Return by which proxy the store is called."""
    hosts = {"s3": "s3.amazonaws.com", "gs": "storage.googleapis.com", "az": "blob.core.windows.net"}
    if (name := url.options.get("region") or url.options.get("account_name")) is not None:
        hosts |= {"s3": f"s3.{name}.amazonaws.com", "az": f"{name}.blob.core.windows.net"}
    proxy_url = url.options.get("proxy_url")
    endpoint = str(url.options.get("endpoint", f"https://{hosts[url.scheme]}"))
    return through(endpoint, None if proxy_url is None else str(proxy_url))


def _topic(opened: Callable[[], Store], topic: str, stream: str) -> Outcome:
    store = opened()
    try:
        catalog = read_catalog(ObjectFiles(store), topic)
    except TopicNotFoundError:
        return passed(f"{store.name}/{topic} does not exist: `efo run` creates it")
    try:
        check_topic(ObjectFiles(store), topic, stream)
    except LogOwnerError as error:
        return failed(str(error), "choose another [relay] topic or directory")
    return passed(f"{store.name}/{topic} has {len(catalog.shards)} partitions")
