"""TLS of the service: the same requests over HTTPS, with and without a client certificate."""

from __future__ import annotations

import ssl
from functools import partial

import httpx2
import pytest
import trio
import trustme
from prometheus_client import CollectorRegistry

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
