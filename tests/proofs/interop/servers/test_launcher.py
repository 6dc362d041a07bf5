from __future__ import annotations

import sys
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from proofs.interop.servers import launcher, processes
from proofs.interop.servers.launcher import ServerError
from proofs.interop.servers.processes import Listener
from proofs.interop.servers.servers import SERVERS, Command
from proofs.paths import ROOT

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")

HTTPS = """
import http.server, ssl, sys
port, certificate, key = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthy" else 404)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def server(*arguments, ready_files=(), needs=()):
    def command(settings):
        port, certificate, key = str(settings.ports[0]), str(settings.certificate), str(settings.key)
        return Command((sys.executable, "-c", *(arguments or (HTTPS, port, certificate, key))), {})

    return replace(SERVERS[0], name="some", needs=needs, ready_files=ready_files, health="/healthy", command=command)


async def test_a_server_runs_until_the_context_is_left(tmp_path):
    async with launcher.running(server(), tmp_path, print) as endpoint:
        assert endpoint.process.poll() is None
        assert endpoint.url.startswith("https://127.0.0.1:")
        [listener] = processes.listeners(processes.process_tree(endpoint.process.pid))
        assert endpoint.url.endswith(f":{listener.port}")
        assert listener.is_loopback
    assert endpoint.process.poll() is not None


async def test_the_error_of_a_server_that_exits_has_its_output(tmp_path):
    with pytest.raises(ServerError, match=r"(?s)some exited with 3\. The end of its output:.*no such port"):
        async with launcher.running(server("import sys; print('no such port'); sys.exit(3)"), tmp_path, print):
            pytest.fail("the server did not start")


async def test_a_server_that_listens_beyond_loopback_is_rejected(tmp_path, monkeypatch):
    everywhere = Listener(ip_address("0.0.0.0"), 4567)  # noqa: S104 - nobody listens there
    monkeypatch.setattr(processes, "listeners", lambda _processes: {everywhere})
    with pytest.raises(ServerError, match=r"some listens beyond the loopback interface: 0\.0\.0\.0 port 4567"):
        async with launcher.running(server(), tmp_path, print) as endpoint:
            pytest.fail(f"{endpoint} was used")


async def test_a_server_that_cannot_be_downloaded_is_named():
    with pytest.raises(ServerError, match="some cannot be downloaded: not found: no-such-program"):
        await launcher.install(server(needs=("no-such-program",)))
    with pytest.raises(ServerError, match=r"(?s)cannot be downloaded: make --silent nowhere exited with 2.*nowhere"):
        await launcher.install(server(ready_files=(ROOT / "nowhere",)))


async def test_an_installed_server_is_not_downloaded_again():
    await launcher.install(server(ready_files=(ROOT / "pyproject.toml",)))
