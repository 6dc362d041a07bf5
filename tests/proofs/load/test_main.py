from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys

import pytest
import trio

from efo.protocol.aggregation import is_aggregate
from efo.protocol.messages import parse_message
from proofs.load.__main__ import main

COMMAND = [sys.executable, "-m", "proofs.load"]


async def connect(served):
    host, _, port = served["url"].rpartition("//")[2].partition(":")
    tcp = await trio.open_tcp_stream(host, int(port))
    if served["ca_file"] is None:
        return tcp
    context = ssl.create_default_context(cafile=served["ca_file"])
    context.set_alpn_protocols(["h2"])
    return trio.SSLStream(tcp, context, server_hostname=host, https_compatible=True)


@pytest.mark.parametrize(
    ("options", "tls"), [(["--aggregated", "3", "--record-bytes", "20"], True), (["--no-tls"], False)]
)
async def test_the_command_serves_until_sigterm(options, tls, http2_client):
    command = [*COMMAND, "--stream", "s", "--shards", "2", "--consumer", "c", "--records-per-event", "7", *options]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    try:
        served = json.loads(await read_line(process.stdout))
        assert served["url"].startswith("https://" if tls else "http://")
        stream = served["streams"]["s"]
        assert len(stream["shards"]) == 2
        async with await connect(served) as connection:
            client = http2_client(connection)
            call = await client.subscribed(stream["consumers"]["c"], stream["shards"][1])
            event = parse_message(await call.next_message())
            assert [is_aggregate(record) for record in event.records] == [tls] * 7
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        process.kill()
        await process.stdout.aclose()


async def read_line(stream):
    line = b""
    while not line.endswith(b"\n"):
        line += await stream.receive_some()
    return line


def test_a_port_in_use_exits_with_69(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 69
    assert capsys.readouterr().err == f"port {port} of 127.0.0.1: Address already in use\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--record-bytes", "0"], "record_bytes is 0: it must be greater than 0"),
        (["--shards", "0"], "shards of load is 0: it must be greater than 0"),
        (["--stream", "or/ders"], "or/ders"),
        (["--consumer", "two words"], "two words"),
    ],
)
def test_an_invalid_load_exits_with_64(arguments, message, capsys):
    assert main(arguments) == 64
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--port", "99999"], "99999 is not a port"), (["--port", "-1"], "-1 is not a port"), (["--prot", "1"], "--prot")],
)
def test_an_invalid_option_exits_with_64(arguments, message, capsys):
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 64
    assert message in capsys.readouterr().err
