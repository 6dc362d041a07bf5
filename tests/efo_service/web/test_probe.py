"""What asks a service gets an answer, or an error: whatever program listens there. Where it is asked."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from efo_service.errors import UnavailableError
from efo_service.top.sample import fetch
from efo_service.web.probe import ServiceAddress
from efo_service.workers.endpoints import WorkerEndpoints

DEEP = b"[" * 100_000


@contextmanager
def program(answer):
    """Listen as another program, which sends `answer` to each client, again and again if it is a tuple."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, suppress(OSError):
                        client.recv(65536)
                        first, *again = answer if isinstance(answer, tuple) else (answer,)
                        client.sendall(first)
                        while again:
                            client.sendall(again[0])

        threading.Thread(target=serve, daemon=True).start()
        yield ServiceAddress("127.0.0.1", listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


OK = b"HTTP/1.1 200 OK\r\n\r\n"


def test_an_answer_without_end_is_none(monkeypatch):
    monkeypatch.setattr("efo_service.web.probe._BODY_BYTES", 1_000_000)
    with program((OK, b"x" * 65536)) as address, pytest.raises(UnavailableError, match="more than 1000000 bytes"):
        address.get("/livez")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 " + b"9" * 100_000,
    ],
)
def test_what_is_no_answer_of_http_is_none(answer):
    with program(answer) as address, pytest.raises(UnavailableError, match="no response from"):
        address.get("/livez")


@pytest.mark.parametrize("body", [DEEP, b"\xff" * 100, b"null", b'{"streams": 7}', b'{"problems": "x"}'])
def test_what_is_no_answer_of_efo_is_refused_by_top_and_by_the_supervisor(body):
    with program(OK + body) as address:
        with pytest.raises(UnavailableError, match="is not efo, or another version"):
            fetch(address)
        endpoints = WorkerEndpoints(address, lambda: {"w-1": address.port})
        statuses = endpoints.statuses()
        assert isinstance(statuses.get("w-1", {}), dict)
        assert endpoints.snapshot().streams == ()
        assert next(iter(endpoints.collect())).name == "efo_worker_up"


def test_a_worker_that_is_stopped_costs_the_supervisor_less_than_its_client_waits():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = ServiceAddress("127.0.0.1", silent.getsockname()[1])
        endpoints = WorkerEndpoints(address, lambda: {"w-1": address.port})
        assert endpoints._service.seconds < address.seconds
        assert endpoints.statuses() == {}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),  # noqa: S104 - the value under test
        ("::", "http://[::1]:8080"),
        ("0:0:0:0:0:0:0:0", "http://[::1]:8080"),
        ("[::]", "http://[::1]:8080"),
        ("::1", "http://[::1]:8080"),
        ("2001:db8::7", "http://[2001:db8::7]:8080"),
        ("localhost", "http://localhost:8080"),
    ],
)
def test_a_service_that_listens_on_all_addresses_is_called_on_loopback(host, url):
    assert ServiceAddress(host, 8080).url == url


def test_an_address_of_ipv6_has_brackets_in_the_error():
    with pytest.raises(UnavailableError, match=r"no response from http://\[::1\]:1/livez"):
        ServiceAddress("::", 1).get("/livez")
