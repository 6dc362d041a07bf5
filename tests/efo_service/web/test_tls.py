"""TLS of the service: the same requests over HTTPS, with and without a client certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from functools import partial

import httpx2
import pytest
import structlog
import trio
import trustme
from prometheus_client import CollectorRegistry
from starlette.responses import PlainTextResponse

from efo.errors import ConfigurationError
from efo_service.errors import UnavailableError
from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.probe import ServiceAddress
from efo_service.web.security.access import Access
from efo_service.web.security.guard import Guard
from efo_service.web.server import serve
from efo_service.web.tls import TlsFiles

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    server = authority.issue_cert("127.0.0.1")
    server.cert_chain_pems[0].write_to_path(directory / "server.crt")
    server.private_key_pem.write_to_path(directory / "server.key")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    return TlsFiles(directory / "server.crt", directory / "server.key", directory / "ca.pem")


def issued(authority, directory, **validity) -> TlsFiles:
    """Return the files of a new certificate."""
    directory.mkdir(exist_ok=True)
    found = TlsFiles(directory / "issued.crt", directory / "issued.key")
    certificate = authority.issue_cert("127.0.0.1", not_before=datetime(2020, 1, 1, tzinfo=UTC), **validity)
    certificate.cert_chain_pems[0].write_to_path(found.certificate)
    certificate.private_key_pem.write_to_path(found.key)
    return found


def install(files: TlsFiles, target: TlsFiles) -> None:
    """Copy certificate and key."""
    target.certificate.write_bytes(files.certificate.read_bytes())
    target.key.write_bytes(files.key.read_bytes())


@pytest.fixture
async def url(nursery, files):
    app = create_app(Health(clock=lambda: 0.0), CollectorRegistry(), lambda: {"worker_id": "w-1"}, None, Guard())
    return await nursery.start(partial(serve, app, "127.0.0.1", 0, tls=files))


def client(authority, certificate=None) -> httpx2.AsyncClient:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return httpx2.AsyncClient(verify=context, trust_env=False, headers={"host": "efo.example"})


async def test_a_client_certificate_lets_read_and_probes_need_none(url, authority):
    assert url.startswith("https://127.0.0.1:")
    async with client(authority) as stranger:
        assert (await stranger.get(f"{url}/livez")).status_code == 200
        assert (await stranger.get(f"{url}/status")).status_code == 403
    async with client(authority, authority.issue_cert("operator@efo.example")) as operator:
        assert (await operator.get(f"{url}/status")).json() == {"worker_id": "w-1"}


async def test_a_certificate_of_another_authority_is_refused_by_the_handshake(url, authority):
    other = trustme.CA().issue_cert("operator@efo.example")
    async with client(authority, other) as forger:
        with pytest.raises((httpx2.TransportError, OSError)):
            await forger.get(f"{url}/livez")


async def test_commands_on_the_machine_trust_the_certificate_itself(url, files):
    port = int(url.rpartition(":")[2])
    address = ServiceAddress("127.0.0.1", port, certificate=files.certificate)
    status, body = await trio.to_thread.run_sync(address.get, "/livez")
    assert (status, body) == (200, '{"status":"alive"}')
    assert address.url == url
    with pytest.raises(UnavailableError, match="no response from https://"):
        await trio.to_thread.run_sync(address._replace(certificate=files.client_ca.with_name("none")).get, "/livez")


async def test_a_renewed_certificate_is_served_without_a_restart(nursery, files, tmp_path):
    """As by cert-manager. Commands on the machine trust the file as it is now."""
    served = TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key")
    install(files, served)
    url = await nursery.start(partial(serve, PlainTextResponse("alive"), "127.0.0.1", 0, tls=served))
    address = ServiceAddress("127.0.0.1", int(url.rpartition(":")[2]), certificate=served.certificate)
    renewed = issued(trustme.CA(), tmp_path / "new")
    with structlog.testing.capture_logs() as lines:
        served.key.write_bytes(renewed.key.read_bytes())  # the pair does not fit now, so the old one stays
        assert await trio.to_thread.run_sync(address.get, "/") == (200, "alive")
        served.certificate.write_bytes(renewed.certificate.read_bytes())
        for _ in range(2):
            assert await trio.to_thread.run_sync(address.get, "/") == (200, "alive")
    assert [line["event"] for line in lines] == ["certificate_not_renewed", "certificate_renewed"]


async def test_commands_on_the_machine_do_not_fail_when_the_certificate_expires(nursery, authority, tmp_path):
    """The service reads its streams all the same: a health check must not have it restarted."""
    served = issued(authority, tmp_path, not_after=datetime(2020, 1, 2, tzinfo=UTC))
    url = await nursery.start(partial(serve, PlainTextResponse("alive"), "127.0.0.1", 0, tls=served))
    address = ServiceAddress("127.0.0.1", int(url.rpartition(":")[2]), certificate=served.certificate)
    assert await trio.to_thread.run_sync(address.get, "/") == (200, "alive")


async def test_the_token_of_the_settings_is_sent_and_a_wrong_one_is_explained(nursery):
    guard = Guard(Access(TOKEN))
    app = create_app(Health(clock=lambda: 0.0), CollectorRegistry(), lambda: {"worker_id": "w-1"}, None, guard)
    url = await nursery.start(serve, app, "127.0.0.1", 0)
    address = ServiceAddress("127.0.0.1", int(url.rpartition(":")[2]), TOKEN)
    assert (await trio.to_thread.run_sync(address.get, "/status"))[0] == 200
    status, _ = await trio.to_thread.run_sync(address._replace(token="x" * 20).get, "/status")
    assert status == 401
    assert "set EFO_SERVICE__TOKEN" in address.refusal(status)
    assert address.refusal(200) is None


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"key": "ca.pem"}, "are not a certificate and its unencrypted private key in PEM"),
        ({"certificate": "server.key"}, "are not a certificate and its unencrypted private key in PEM"),
        ({"client_ca": "server.key"}, "client_ca_file .*server.key has no certificates in PEM"),
    ],
)
async def test_files_that_do_not_fit_are_refused_at_the_start(files, changes, part):
    wrong = files._replace(**{name: files.key.with_name(file) for name, file in changes.items()})
    with pytest.raises(ConfigurationError, match=part):
        await serve(lambda *_: None, "127.0.0.1", 0, tls=wrong)
