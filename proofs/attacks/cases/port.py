"""The service's port: whoever reaches it, without the token unless a case says so."""

from __future__ import annotations

import base64
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import trustme

from proofs.attacks.service import TOKEN, Service, serving
from proofs.situations.situation import Cases, Outcome

cases = Cases("port", seconds=240)

GET: Final = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SECONDS: Final = 5.0
"""For which a flood lasts."""
HELD: Final = "no lease is lost, no step takes 50 ms, every probe is answered, every record relayed"


def frame(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, 0]) + bytes(4) + payload


def _settings(start: int) -> bytes:
    """Return 500 frames of SETTINGS with ids that no frame before had."""
    return b"".join(frame(4, struct.pack(">HI", number % 60_000 + 10, number)) for number in range(start, start + 500))


def _drain(connection: socket.socket) -> None:
    def read() -> None:
        with suppress(OSError):
            while connection.recv(65536):
                pass

    threading.Thread(target=read, daemon=True).start()


def flood(service: Service, begin: bytes, more: Callable[[int], bytes], *, seconds: float = _SECONDS) -> int:
    """Send `begin`, and then `more` again and again, on as many connections as the service ends. Return the bytes."""
    sent, turn, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError), service.connect() as connection:
            connection.settimeout(5)
            _drain(connection)
            connection.sendall(begin)
            while time.monotonic() < end:
                data = more(turn)
                turn += 1
                connection.sendall(data)
                sent += len(data)
    return sent


@contextmanager
def in_threads(count: int, work: Callable[[int], object]) -> Iterator[None]:
    """Run work(number) in some threads, and wait for their ends."""
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


# --- HTTP/2 ------------------------------------------------------------------------------------------------------


@cases.case(HELD, name="h2c with prior knowledge: SETTINGS of distinct ids")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            sent = flood(service, PREFACE + frame(4), lambda turn: _settings(turn * 500))
            answer = service.ask(PREFACE + frame(4))
        return service.outcome(f"{answer[:12]!r}, {sent / 1e6:.1f} MB", answer.startswith(b"HTTP/1.1 505"))


@cases.case(HELD, name="h2c with prior knowledge: PING")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            sent = flood(service, PREFACE + frame(4), lambda _: frame(6, b"12345678") * 500)
        return service.outcome(f"{sent / 1e6:.1f} MB")


@cases.case("it is answered as HTTP/1.1; " + HELD, name="Upgrade: h2c, then frames")
def _() -> Outcome:
    settings = base64.urlsafe_b64encode(struct.pack(">HI", 3, 100)).rstrip(b"=")
    upgrade = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: " + settings + b"\r\n\r\n"
    with serving() as service:
        with service.attacked():
            answer = service.ask(GET.removesuffix(b"\r\n") + upgrade)
            broken = service.ask(GET.removesuffix(b"\r\n") + upgrade.replace(settings, b"!!!!a"))
            flood(service, GET.removesuffix(b"\r\n") + upgrade, lambda turn: _settings(turn * 500))
        right = answer.startswith(b"HTTP/1.1 200") and broken.startswith(b"HTTP/1.1 200")
        return service.outcome(f"{answer[:12]!r}", right)


@contextmanager
def _with_tls() -> Iterator[tuple[Service, ssl.SSLContext]]:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with ExitStack() as stack:
        chain = stack.enter_context(certificate.cert_chain_pems[0].tempfile())
        key = stack.enter_context(certificate.private_key_pem.tempfile())
        files = {"SERVICE__CERTIFICATE_FILE": chain, "SERVICE__KEY_FILE": key}
        yield stack.enter_context(serving(files)), context


@cases.case("HTTP/1.1 is chosen, h2 is refused; " + HELD, name="TLS: ALPN h2, and bytes that are no TLS")
def _() -> Outcome:
    with _with_tls() as (service, context):
        with service.attacked():
            context.set_alpn_protocols(["h2"])
            with context.wrap_socket(service.connect(), server_hostname="localhost") as connection:
                chosen = connection.selected_alpn_protocol()
                connection.sendall(PREFACE + frame(4))
                answer = connection.recv(100)
            for _ in range(200):
                service.ask(GET)
            service.ask(b"\x16\x03\x01\xff\xff" + bytes(70_000))
        lines = sum(line.get("event") == "connection_failed" for line in service.log)
        right = chosen is None and answer.startswith(b"HTTP/1.1 505") and lines == 0
        return service.outcome(f"{chosen}, {answer[:12]!r}, {lines} lines", right)


@cases.case(HELD, name="TLS: handshakes begun and left, all at the same moment")
def _() -> Outcome:
    with _with_tls() as (service, context):
        with service.attacked():
            hello = ssl.MemoryBIO()
            with suppress(ssl.SSLWantReadError):
                context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
            data = hello.read()
            for _ in range(2):
                with ExitStack() as stack:
                    idle = [stack.enter_context(service.connect()) for _ in range(200)]
                    for connection in idle:
                        with suppress(OSError):
                            connection.sendall(data)
                    time.sleep(0.5)
        return service.outcome("400 handshakes")


# --- connections -------------------------------------------------------------------------------------------------


@cases.case("/livez and `efo healthcheck` work", name="256 and more idle connections of one client")
def _() -> Outcome:
    with serving() as service:
        with service.attacked(), ExitStack() as idle:
            for _ in range(400):
                idle.enter_context(service.connect())
            checks = [service.efo("healthcheck", *ready).returncode for ready in ([], ["--ready"])]
        return service.outcome(f"healthcheck {checks}", checks == [0, 0])


@cases.case("/livez and `efo healthcheck` work", name="idle connections that are opened again at once")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            end = time.monotonic() + _SECONDS

            def occupy(_: int) -> None:
                open_: list[socket.socket] = []
                while time.monotonic() < end:
                    with suppress(OSError):
                        open_.append(service.connect())
                    if len(open_) > 150:
                        open_.pop(0).close()

            with in_threads(2, occupy):
                check = service.efo("healthcheck").returncode
        return service.outcome(f"healthcheck {check}", check == 0)


@cases.case("/livez works, slow connections end", name="heads that come a byte a second")
def _() -> Outcome:
    with serving() as service:
        with service.attacked(), ExitStack() as stack:
            slow = [stack.enter_context(service.connect()) for _ in range(250)]
            for byte in GET[:8]:
                for connection in slow:
                    with suppress(OSError):
                        connection.sendall(bytes([byte]))
                time.sleep(1.0)
            ended = sum(_is_closed(connection) for connection in slow)
        return service.outcome(f"{ended} of {len(slow)} were ended", ended == len(slow))


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(3)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@cases.case("/livez works, the bodies are refused with 408", name="bodies that come slowly, or never")
def _() -> Outcome:
    with serving({"SERVICE__TOKEN": TOKEN}) as service:
        head = b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n"
        with service.attacked(), ExitStack() as stack:
            slow = [stack.enter_context(service.connect()) for _ in range(200)]
            for connection in slow:
                connection.sendall(head)
            for _ in range(7):
                for connection in slow:
                    with suppress(OSError):
                        connection.sendall(b"x")
                time.sleep(1.0)
            slow[-1].settimeout(3)
            answer = slow[-1].recv(100)
        return service.outcome(f"{answer[:12]!r}", answer.startswith(b"HTTP/1.1 408"))


@cases.case("/livez works, who does not read is dropped", name="responses that nobody reads")
def _() -> Outcome:
    with serving() as service:
        asked = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 300
        with service.attacked(), ExitStack() as stack:
            deaf = []
            for _ in range(100):
                connection = socket.socket()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(("127.0.0.1", service.port))
                connection.setblocking(False)
                with suppress(OSError):
                    connection.sendall(asked)
                deaf.append(stack.enter_context(connection))
            time.sleep(14)
            ended = sum(_is_closed(each) for each in deaf)
        return service.outcome(f"{ended} of {len(deaf)} were ended", ended == len(deaf))


@cases.case(HELD, name="requests in a pipeline, on 50 connections")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            piece = GET * 200
            with in_threads(50, lambda _: flood(service, b"", lambda _turn: piece)):
                pass
        return service.outcome("50 connections")


@cases.case(HELD, name="/metrics, /readyz and /status, asked by many at once")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            heads = [GET.replace(b"/livez", path) for path in (b"/metrics", b"/readyz", b"/status", b"/map", b"/")]
            with in_threads(30, lambda number: flood(service, b"", lambda turn: heads[(number + turn) % len(heads)])):
                pass
        return service.outcome("30 clients")


@cases.case(HELD, name="connections that are opened and reset")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            end, count = time.monotonic() + _SECONDS, [0]

            def knock(_: int) -> None:
                while time.monotonic() < end:
                    with suppress(OSError), service.connect() as connection:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        count[0] += 1

            with in_threads(2, knock):
                pass
        return service.outcome(f"{count[0]:,} connections")
