"""`efo run` with its leases in a server: one that is unavailable, and one that is lost and comes back."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import pytest

from efo_service.exit_codes import Exit
from proofs.local_servers.postgres import PASSWORD, serve_postgres
from proofs.local_servers.redis import serve_redis
from proofs.local_servers.wire import Wire
from tests.e2e.running import relayed, running

pytestmark = pytest.mark.e2e

SERVERS = {"postgres": serve_postgres, "redis": serve_redis}


def moved(url: str, port: int) -> str:
    """Return the URL with another port."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{port}")))


@pytest.mark.parametrize("store", SERVERS)
async def test_shards_stop_when_the_server_is_lost_and_resume_when_it_is_back(
    store, servers, fake, files, nursery, tmp_path
):
    url = servers.url(SERVERS[store])
    wire = Wire("127.0.0.1", urlsplit(url).port)
    nursery.start_soon(wire.run)
    environment = {
        "EFO_LEASES__STORE": store,
        "EFO_LEASES__URL": moved(url, wire.port),
        "EFO_LEASES__FAILOVER_SECONDS": "3",
        "EFO_CONSUMER__APPLICATION": tmp_path.name.replace("[", "-").replace("]", ""),
        "EFO_SERVICE__LOG_LEVEL": "debug",  # at "info", an outage is two lines
    }

    def seen(event: str) -> set[str]:
        return {line["shard_id"] for line in efo.lines if line["event"] == event}

    async with running(files, **environment) as efo:
        fake.put_many("orders", [(f"key-{number}", b"before") for number in range(100)])
        await efo.until(lambda: relayed(files) == 100)
        wire.cut()
        fake.put_many("orders", [(f"key-{number}", b"during") for number in range(100)])
        await efo.until(lambda: relayed(files) == 200)  # the leases are valid until another worker could take them
        await efo.until(lambda: len(seen("lease_lost")) == len(seen("shard_stopped")) == 2)
        fake.put_many("orders", [(f"key-{number}", b"later") for number in range(100)])
        wire.mend()
        await efo.until(lambda: relayed(files) == 300)
        efo.process.terminate()
        assert await efo.ended() == Exit.OK, efo.stderr
    lost = [line["reason"] for line in efo.lines if line["event"] == "lease_lost"]
    assert [reason for reason in lost if reason != "released"] == ["store", "store"]
    outage = [line["event"] for line in efo.lines if line["event"].startswith("lease_store_outage")]
    assert outage == ["lease_store_outage_began", "lease_store_outage_ended"]
    assert PASSWORD not in efo.stderr + str(efo.lines)
