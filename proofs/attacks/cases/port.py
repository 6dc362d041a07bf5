"""The service's port: whoever reaches it, without the token unless a case says so."""

from __future__ import annotations

import base64
import json
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import trustme

from proofs.attacks.service import STREAM, TOKEN, Service, serving, until
from proofs.situations.situation import Cases, Outcome

cases = Cases("port")

GET: Final = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SECONDS: Final = 5.0
"""For which a flood lasts."""
_HELD: Final = "no lease is lost, no step takes 50 ms, every probe is answered, every record relayed"


def _frame(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, 0]) + bytes(4) + payload


def _settings(start: int) -> bytes:
    """Return 500 frames of SETTINGS with ids that no frame before had."""
    return b"".join(_frame(4, struct.pack(">HI", number % 60_000 + 10, number)) for number in range(start, start + 500))


def _drain(connection: socket.socket) -> None:
    def read() -> None:
        with suppress(OSError):
            while connection.recv(65536):
                pass

    threading.Thread(target=read, daemon=True).start()


def _flood(service: Service, begin: bytes, more: Callable[[int], bytes], *, seconds: float = _SECONDS) -> int:
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
def _in_threads(count: int, work: Callable[[int], object]) -> Iterator[None]:
    """Run work(number) in some threads, and wait for their ends."""
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


# --- HTTP/2 ------------------------------------------------------------------------------------------------------


@cases.case(_HELD, name="h2c with prior knowledge: SETTINGS of distinct ids")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            sent = _flood(service, PREFACE + _frame(4), lambda turn: _settings(turn * 500))
            answer = service.ask(PREFACE + _frame(4))
        return service.outcome(f"{answer[:12]!r}, {sent / 1e6:.1f} MB", answer.startswith(b"HTTP/1.1 505"))


@cases.case(_HELD, name="h2c with prior knowledge: PING")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            sent = _flood(service, PREFACE + _frame(4), lambda _: _frame(6, b"12345678") * 500)
        return service.outcome(f"{sent / 1e6:.1f} MB")


@cases.case("it is answered as HTTP/1.1; " + _HELD, name="Upgrade: h2c, then frames")
def _() -> Outcome:
    settings = base64.urlsafe_b64encode(struct.pack(">HI", 3, 100)).rstrip(b"=")
    upgrade = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: " + settings + b"\r\n\r\n"
    with serving() as service:
        with service.attacked():
            answer = service.ask(GET.removesuffix(b"\r\n") + upgrade)
            broken = service.ask(GET.removesuffix(b"\r\n") + upgrade.replace(settings, b"!!!!a"))
            _flood(service, GET.removesuffix(b"\r\n") + upgrade, lambda turn: _settings(turn * 500))
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
        yield stack.enter_context(serving(**files)), context


@cases.case("HTTP/1.1 is chosen, h2 is refused; " + _HELD, name="TLS: ALPN h2, and bytes that are no TLS")
def _() -> Outcome:
    with _with_tls() as (service, context):
        with service.attacked():
            context.set_alpn_protocols(["h2"])
            with context.wrap_socket(service.connect(), server_hostname="localhost") as connection:
                chosen = connection.selected_alpn_protocol()
                connection.sendall(PREFACE + _frame(4))
                answer = connection.recv(100)
            for _ in range(200):
                service.ask(GET)
            service.ask(b"\x16\x03\x01\xff\xff" + bytes(70_000))
        lines = sum(line.get("event") == "connection_failed" for line in service.log)
        right = chosen is None and answer.startswith(b"HTTP/1.1 505") and lines == 0
        return service.outcome(f"{chosen}, {answer[:12]!r}, {lines} lines", right)


@cases.case(_HELD, name="TLS: handshakes begun and left, all at the same moment")
def _() -> Outcome:
    with _with_tls() as (service, context):
        with service.attacked():
            hello = ssl.MemoryBIO()
            with suppress(ssl.SSLWantReadError):
                context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
            data = hello.read()
            for _ in range(4):
                with ExitStack() as stack:
                    idle = [stack.enter_context(service.connect()) for _ in range(200)]
                    for connection in idle:
                        with suppress(OSError):
                            connection.sendall(data)
                    time.sleep(0.5)
        return service.outcome("800 handshakes")


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

            with _in_threads(2, occupy):
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
    with serving(SERVICE__TOKEN=TOKEN) as service:
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


@cases.case(_HELD, name="requests in a pipeline, on 50 connections")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            piece = GET * 200
            with _in_threads(50, lambda _: _flood(service, b"", lambda _turn: piece)):
                pass
        return service.outcome("50 connections")


@cases.case(_HELD, name="/metrics, /readyz and /status, asked by many at once")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            heads = [GET.replace(b"/livez", path) for path in (b"/metrics", b"/readyz", b"/status", b"/map", b"/")]
            with _in_threads(30, lambda number: _flood(service, b"", lambda turn: heads[(number + turn) % len(heads)])):
                pass
        return service.outcome("30 clients")


@cases.case(_HELD, name="connections that are opened and reset")
def _() -> Outcome:
    with serving() as service:
        with service.attacked():
            end, count = time.monotonic() + _SECONDS, [0]

            def knock(_: int) -> None:
                while time.monotonic() < end:
                    with suppress(OSError), service.connect() as connection:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        count[0] += 1

            with _in_threads(2, knock):
                pass
        return service.outcome(f"{count[0]:,} connections")


# --- requests ------------------------------------------------------------------------------------------------------


def _asked(right: str, name: str, requests: dict[str, tuple[bytes, bytes]], **settings: str) -> None:
    """Register a case that asks each request, and expects that each response begins with these bytes."""

    @cases.case(right, name=name)
    def try_it() -> Outcome:
        with serving(**settings) as service:
            wrong = {}
            with service.attacked():
                for what, (data, expected) in requests.items():
                    answer = service.ask(data)
                    if not answer.startswith(expected) or answer.count(b"HTTP/1.1 ") != 1:
                        wrong[what] = answer[:60]
            return service.outcome(f"{len(requests) - len(wrong)} of {len(requests)}; {wrong or ''}", not wrong)


_POST: Final = b"POST /actions HTTP/1.1\r\nhost: localhost\r\n"
_400: Final = b"HTTP/1.1 400"
_asked(
    "each is refused, and nothing behind it is a request",
    "requests that two programs read in two ways",
    {
        "length and chunks": (_POST + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + GET, _400),
        "two lengths": (_POST + b"content-length: 4\r\ncontent-length: 4\r\n\r\nabcd" + GET, _400),
        "a list of lengths": (_POST + b"content-length: 4, 4\r\n\r\nabcd" + GET, _400),
        "a sign": (_POST + b"content-length: +4\r\n\r\nabcd" + GET, _400),
        "a blank before the colon": (_POST + b"content-length : 4\r\n\r\nabcd" + GET, _400),
        "two codings": (_POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + GET, b"HTTP/1.1 501"),
        "an unknown coding": (_POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + GET, b"HTTP/1.1 501"),
        "chunks in 1.0": (_POST.replace(b"1.1", b"1.0") + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + GET, _400),
        "a folded line": (_POST + b"x: a\r\n content-length: 4\r\n\r\nabcd" + GET, _400),
        "bare line feeds": (GET.replace(b"\r\n", b"\n") + GET, _400),
        "a bare carriage return": (_POST + b"x: a\rcontent-length: 4\r\n\r\nabcd" + GET, _400),
        "a zero byte": (_POST + b"x: a\0b\r\n\r\n" + GET, _400),
        "two hosts": (GET.replace(b"\r\n\r\n", b"\r\nhost: evil.example\r\n\r\n") + GET, _400),
        "no host": (b"GET /livez HTTP/1.1\r\n\r\n" + GET, _400),
        "an absolute target": (GET.replace(b"/livez", b"http://evil.example/livez") + GET, _400),
        "CONNECT": (b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n" + GET, _400),
        "HTTP/0.9": (b"GET /livez\r\n\r\n" + GET, _400),
        "chunk size with a sign": (
            _POST + b"transfer-encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n" + GET,
            b"HTTP/1.1 403",
        ),
    },
)

_asked(
    "each is refused or answered, within the limits",
    "requests that are too large, or for what is not there",
    {
        "a query of 4 KB": (
            b"GET /status?" + b"a=b&" * 1100 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
            b"HTTP/1.1 414",
        ),
        "a head of 64 KB": (GET[:-2] + b"x: " + b"y" * 65_536 + b"\r\n\r\n", b"HTTP/1.1 431"),
        "a thousand fields": (GET[:-2] + b"x: y\r\n" * 1000 + b"\r\n", b"HTTP/1.1 431"),
        "cookies of 15 KB": (GET[:-2] + b"cookie: " + b"a=b;" * 3900 + b"\r\n\r\n", b"HTTP/1.1 200"),
        "a path of dots": (b"GET /page/../../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 404"),
        "encoded dots": (b"GET /page/..%2f..%2fserver.py HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 404"),
        "twice encoded": (b"GET /page/%252e%252e%252fapp.py HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 404"),
        "a zero in the path": (b"GET /page/page.css%00.js HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 404"),
        "an absolute path": (b"GET //etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 404"),
        "TRACE": (GET.replace(b"GET", b"TRACE"), b"HTTP/1.1 405"),
        "OPTIONS": (GET.replace(b"GET", b"OPTIONS"), b"HTTP/1.1 405"),
        "HEAD": (GET.replace(b"GET", b"HEAD"), b"HTTP/1.1 200"),
        "HEAD of the feed": (GET.replace(b"GET /livez", b"HEAD /events"), b"HTTP/1.1 405"),
        "POST of the feed": (GET.replace(b"GET /livez", b"POST /events"), b"HTTP/1.1 405"),
        "a WebSocket": (
            GET.replace(b"/livez", b"/events").removesuffix(b"\r\n")
            + b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\norigin: null\r\n\r\n",
            b"HTTP/1.1 403",
        ),
        "an Accept of nonsense": (
            GET.replace(b"/livez", b"/metrics")[:-2] + b"accept: application/openmetrics-text;version=abc\r\n\r\n",
            b"HTTP/1.1 200",
        ),
    },
)


def _status(*fields: str, target: str = "/status") -> bytes:
    return "\r\n".join((f"GET {target} HTTP/1.1", *fields, "", "")).encode()


_LOCAL: Final = "host: localhost"
_asked(
    "only the first is of this machine, all others are refused with 403",
    "requests of this machine, and those that claim to be",
    {
        "this machine": (_status(_LOCAL), b"HTTP/1.1 200"),
        **{
            host: (_status(f"host: {host}"), b"HTTP/1.1 403")
            for host in (
                *("[::1]x", "[::1]:80x", "[::1%25lo]", "[::ffff:10.0.0.1]", "localhost.evil.example", "evil.example"),
                *("127.0.0.1.evil.example", "127.1", "2130706433", "0x7f.1", "localhost:x", "localhost@evil.example"),
                *("0.0.0.0", "", "localhost,evil.example", "evil.example:127.0.0.1"),  # noqa: S104 - a Host header
            )
        },
        **{
            field: (_status(_LOCAL, f"{field}: 10.0.0.7"), b"HTTP/1.1 403")
            for field in (
                *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip", "via"),
                *("x-client-ip", "true-client-ip", "cf-connecting-ip", "x-cluster-client-ip", "x-envoy-peer-metadata"),
                *("l5d-client-id", "x-amzn-trace-id", "x-azure-clientip", "cdn-loop", "x-original-url", "x-request-id"),
                *("traceparent", "x-b3-traceid", "proxy-connection", "x-anything"),
            )
        },
        **{
            field: (_status(_LOCAL, field), b"HTTP/1.1 403")
            for field in (
                *("origin: https://evil.example", "origin: null", "origin: http://localhost:1"),
                *("sec-fetch-site: cross-site", "sec-fetch-site: same-site"),
            )
        },
        "HTTP/1.0, as nginx speaks": (_status(_LOCAL).replace(b"1.1", b"1.0"), b"HTTP/1.1 403"),
        "the map": (_status("host: evil.example", target="/map"), b"HTTP/1.1 403"),
        "the feed": (_status("host: evil.example", target="/events"), b"HTTP/1.1 403"),
    },
)


@cases.case("no action is performed without the token", name="actions: forms, guesses and forged sessions")
def _() -> Outcome:
    body = json.dumps({"action": "release", "shard_id": "shardId-000000000000"}).encode()

    def post(*fields: str, content: bytes = body) -> bytes:
        head = "\r\n".join(("POST /actions HTTP/1.1", _LOCAL, f"content-length: {len(content)}", *fields, "", ""))
        return head.encode() + content

    json_type = "content-type: application/json"
    requests = [
        post(json_type),
        post("content-type: text/plain"),
        post("content-type: application/x-www-form-urlencoded", content=b"action=release"),
        post(json_type, "authorization: Bearer"),
        post(json_type, "authorization: Bearer " + "x" * 5000),
        post(json_type, "authorization: Basic " + base64.b64encode(f"a:{TOKEN}".encode()).decode()),
        post(json_type, "cookie: efo_session=99999999999." + "0" * 64),
        post(json_type, "cookie: efo_session=" + "9" * 5000),
        post(json_type, "origin: https://evil.example"),
        *(post(json_type, f"authorization: Bearer guess-{number}") for number in range(30)),
    ]
    with serving(SERVICE__TOKEN=TOKEN) as service:
        with service.attacked():
            answers = [service.ask(request)[:12].decode() for request in requests]
            late = service.ask(post(json_type, f"authorization: Bearer {TOKEN}"))[:12]  # after ten wrong ones
        seen = sorted({answer[-3:] for answer in answers})
        guesses = sum(line.get("event") == "wrong_token" for line in service.log)
        right = set(seen) <= {"401", "403", "429"} and late.endswith(b"429") and guesses <= 10
        return service.outcome(f"{', '.join(seen)}, {guesses} guesses counted", right)


@cases.case("viewers beyond the limits are refused, those that do not read are dropped; " + _HELD, seconds=90)
def viewers_of_the_page() -> Outcome:
    head = f"GET /events HTTP/1.1\r\n{_LOCAL}\r\n\r\n".encode()
    with serving() as service:
        with service.attacked(), ExitStack() as stack:
            viewers = [stack.enter_context(service.connect()) for _ in range(60)]
            for viewer in viewers:
                viewer.sendall(head)
            time.sleep(3)
            answers = [viewer.recv(12) for viewer in viewers]
            watching = sum(answer == b"HTTP/1.1 200" for answer in answers)
            refused = sum(answer == b"HTTP/1.1 503" for answer in answers)
            other = service.connect("127.0.0.2")  # the same server, another address of the client
            time.sleep(3)
            other.close()
        return service.outcome(f"{watching} watch, {refused} refused", (watching, refused) == (16, 44))


@cases.case("the next viewer finds room; " + _HELD, name="viewers that come and go")
def _() -> Outcome:
    head = f"GET /events HTTP/1.1\r\n{_LOCAL}\r\n\r\n".encode()
    with serving() as service:
        with service.attacked():
            for _ in range(300):
                with service.connect() as viewer:
                    viewer.sendall(head)
                    if random.random() < 0.5:  # noqa: S311 - which
                        viewer.recv(100)
            with service.connect() as viewer:
                viewer.sendall(head)
                viewer.settimeout(10)
                answer = viewer.recv(12)
        return service.outcome(f"{answer!r}", answer == b"HTTP/1.1 200")


@cases.case("each ends in 40x or is answered; " + _HELD, name="random bytes, and requests with bytes changed")
def _() -> Outcome:
    rng = random.Random(7)  # noqa: S311 - the same each time
    seeds = [GET, _POST + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", _status(_LOCAL), PREFACE]
    with serving() as service:
        seen = set()
        with service.attacked():
            for number in range(1500):
                data = bytearray(rng.choice(seeds) if number % 3 else rng.randbytes(rng.randrange(1, 400)))
                for _ in range(rng.randrange(6)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                seen.add(service.ask(bytes(data))[:12])
        statuses = {answer[9:] for answer in seen if answer}
        right = all(answer == b"" or answer.startswith(b"HTTP/1.1 ") for answer in seen) and b"500" not in statuses
        return service.outcome(b" ".join(sorted(statuses)).decode(errors="replace"), right)


# --- several workers ------------------------------------------------------------------------------------------------


def _worker_ports(service: Service) -> list[int]:
    return [service.port + 1, service.port + 2]


def _workers_outcome(service: Service, did: str, is_right: object) -> Outcome:
    """Return the outcome of several processes: their loops are not measured, and /livez is the supervisor's."""
    service._blocked_ms = 0.0  # noqa: SLF001 - as said
    return service.outcome(did, is_right)


@contextmanager
def _several() -> Iterator[Service]:
    with serving(workers=2) as service:
        service.measure = lambda: 0.0  # type: ignore[method-assign] # the supervisor is not metered
        yield service


@cases.case("both ports refuse HTTP/2, and stay ready", name="workers: HTTP/2 and idle connections at their own ports")
def _() -> Outcome:
    with _several() as service:
        with service.attacked(), ExitStack() as stack:
            answers = []
            for port in _worker_ports(service):
                for _ in range(300):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                    connection.sendall(PREFACE + _frame(4))
                    answers.append(connection.recv(12))
            time.sleep(3)
            ready = service.address.get("/readyz")[0]
        return _workers_outcome(service, f"{answers}, ready {ready}", answers == [b"HTTP/1.1 505"] * 2 and ready == 200)


def _pids(service: Service) -> list[int]:
    status = json.loads(service.address.get("/status")[1])
    return [worker["pid"] for worker in status["workers"] if worker["pid"]]


@cases.case("it is restarted, and every record is relayed once", name="workers: one is killed", seconds=90)
def _() -> Outcome:
    import os
    import signal

    with _several() as service:
        with service.attacked():
            victim = _pids(service)[0]
            os.kill(victim, signal.SIGKILL)
            restarted = until(lambda: len(_pids(service)) == 2 and victim not in _pids(service), 20)
            until(lambda: service.address.get("/readyz")[0] == 200, 20)
        return _workers_outcome(service, "restarted" if restarted else "not restarted", restarted)


@cases.case("/status says which one, the other takes its shards, every record is relayed once", seconds=120)
def workers__one_is_stopped_and_continued() -> Outcome:
    import os
    import signal

    with _several() as service:
        with service.attacked():
            victim = _pids(service)[0]
            os.kill(victim, signal.SIGSTOP)
            told = until(lambda: "not ready" in service.address.get("/readyz")[1], 20)
            taken = until(lambda: service.relayed >= service.put - 20, 30)
            os.kill(victim, signal.SIGCONT)
            again = until(lambda: service.address.get("/readyz")[0] == 200, 30)
        outcome = _workers_outcome(service, f"told {told}, taken over {taken}, ready again {again}", is_right=True)
        # The stopped worker loses its leases: that is right here.
        did, lost = outcome.did, outcome.counts["leases_lost"]
        right = told and taken and again and "the process ended" not in did and lost <= 4
        return Outcome(did, right, {"leases_lost": 0})


@cases.case("the actions and the status are those of all; " + _HELD, name="workers: many ask the supervisor at once")
def _() -> Outcome:
    with _several() as service:
        with service.attacked():
            heads = [GET.replace(b"/livez", path) for path in (b"/metrics", b"/status", b"/map")]
            with _in_threads(20, lambda number: _flood(service, b"", lambda _: heads[number % 3])):
                pass
            status = service.address.get("/status")
        return _workers_outcome(service, f"status {status[0]}", status[0] == 200 and STREAM in status[1])
