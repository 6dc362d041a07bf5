"""The short way of `efo healthcheck`: the command's answer for a healthy service, and for nothing else."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import trio

from efo_service.config.settings import ServiceSettings
from efo_service.quick_healthcheck import DEFAULTS, ask
from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.server import serve


@pytest.fixture
async def port(nursery) -> int:
    """Serve the endpoints of a service that is alive and not ready."""
    app = create_app(Health(clock=lambda: 0.0), None, dict)
    url = await nursery.start(serve, app, "127.0.0.1", 0)
    return int(url.rpartition(":")[2])


async def asked(*arguments: str, **environ: str) -> str | None:
    return await trio.to_thread.run_sync(ask, arguments, environ)


def test_the_defaults_are_those_of_the_configuration() -> None:
    settings = ServiceSettings()
    assert {"host": settings.host, "port": settings.port} == DEFAULTS


async def test_a_service_that_is_alive_is_asked_at_the_address_of_the_configuration(port, tmp_path) -> None:
    config = tmp_path / "efo.toml"
    config.write_text(f'[service]\nport = {port}\n[kinesis]\nstream = "orders"\n')
    assert await asked("--config", str(config)) == "alive"
    assert await asked(EFO_CONFIG=str(config)) == "alive"
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes().replace(b"\n", b"\r\n"))
    assert await asked(EFO_CONFIG=str(config)) == "alive"
    assert await asked("-c", str(config), EFO_SERVICE__PORT="1") is None
    assert await asked(EFO_SERVICE__PORT=str(port), efo_service__host="localhost") == "alive"
    assert '"alive"' in (await asked("--json", EFO_SERVICE__PORT=str(port)) or "")


async def test_what_is_unusual_is_left_to_the_command(port, tmp_path) -> None:
    address = {"EFO_SERVICE__PORT": str(port)}
    assert await asked("--ready", **address) is None
    assert await asked("--help", **address) is None
    assert await asked("--config", str(tmp_path / "missing.toml"), **address) is None
    assert await asked(EFO_SERVICE="{}", **address) is None
    assert await asked(EFO_SERVICE__PORT="80O0") is None
    for text in ("[", "service = 1", "[service]\nport = true", "x = " + "[" * 5000):
        (tmp_path / "odd.toml").write_text(text)
        assert await asked("--config", str(tmp_path / "odd.toml")) is None


@pytest.mark.parametrize(
    "body", [b"<h1>It works!</h1>", b"\xff", b"[]", b"{}", b'{"status": "UP"}', b'{"status": "ready"}']
)
async def test_another_program_is_left_to_the_command(body, nursery) -> None:
    async def serve_another_program(stream):
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    [listener] = await nursery.start(partial(trio.serve_tcp, serve_another_program, 0, host="127.0.0.1"))
    assert await asked(EFO_SERVICE__PORT=str(listener.socket.getsockname()[1])) is None


def test_the_program_imports_what_the_health_check_needs_alone() -> None:
    code = "import sys, efo_service.__main__; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "tomllib" in imported
    assert not {"pydantic", "cyclopts", "rich", "trio"} & {*imported}
