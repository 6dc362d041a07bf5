"""Requests at the service's port: those that are read in two ways, too large, or claim to be of this machine."""

from __future__ import annotations

import base64
import json
import random
import time
from contextlib import ExitStack
from typing import Final

from proofs.attacks.cases.port import GET, HELD, PREFACE
from proofs.attacks.service import TOKEN, serving
from proofs.situations.situation import Cases, Outcome

cases = Cases("port", seconds=240)

# --- requests ------------------------------------------------------------------------------------------------------


def _asked(right: str, name: str, requests: dict[str, tuple[bytes, bytes]]) -> None:
    """Register a case that asks each request, and expects that each response begins with these bytes."""

    @cases.case(right, name=name)
    def try_it() -> Outcome:
        with serving() as service:
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
                *("0.0.0.0", "", "localhost,evil.example", "evil.example:127.0.0.1"),
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
    with serving({"SERVICE__TOKEN": TOKEN}) as service:
        with service.attacked():
            answers = [service.ask(request)[:12].decode() for request in requests]
            late = service.ask(post(json_type, f"authorization: Bearer {TOKEN}"))[:12]  # after ten wrong ones
        seen = sorted({answer[-3:] for answer in answers})
        guesses = sum(line.get("event") == "wrong_token" for line in service.log)
        right = set(seen) <= {"401", "403", "429"} and late.endswith(b"429") and guesses <= 10
        return service.outcome(f"{', '.join(seen)}, {guesses} guesses counted", right)


@cases.case("viewers beyond the limits are refused, those that do not read are dropped; " + HELD)
def viewers_of_the_page() -> Outcome:
    head = _status(_LOCAL, f"authorization: Bearer {TOKEN}", target="/events")
    with serving({"SERVICE__TOKEN": TOKEN}) as service:
        with service.attacked(), ExitStack() as stack:
            viewers = [stack.enter_context(service.connect()) for _ in range(60)]
            for viewer in viewers:
                viewer.sendall(head)
            answers = [viewer.recv(12) for viewer in viewers]
            watching = sum(answer == b"HTTP/1.1 200" for answer in answers)
            refused = sum(answer == b"HTTP/1.1 503" for answer in answers)
            other = stack.enter_context(service.connect("127.0.0.2"))
            other.sendall(head)
            answer = other.recv(12)
            time.sleep(5)
        right = (watching, refused, answer) == (16, 44, b"HTTP/1.1 200")
        return service.outcome(f"{watching} watch, {refused} refused, another address {answer!r}", right)


@cases.case("the next viewer finds room; " + HELD, name="viewers that come and go")
def _() -> Outcome:
    head = f"GET /events HTTP/1.1\r\n{_LOCAL}\r\n\r\n".encode()
    with serving() as service:
        with service.attacked():
            for _ in range(300):
                with service.connect() as viewer:
                    viewer.sendall(head)
                    if random.random() < 0.5:
                        viewer.recv(100)
            with service.connect() as viewer:
                viewer.sendall(head)
                viewer.settimeout(10)
                answer = viewer.recv(12)
        return service.outcome(f"{answer!r}", answer == b"HTTP/1.1 200")


@cases.case("each ends in 40x or is answered; " + HELD, name="random bytes, and requests with bytes changed")
def _() -> Outcome:
    rng = random.Random(7)
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
