"""What a real store's failures become: a wait, a missing right, or a mistake in the settings."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import trustme

from efo.errors import ConfigurationError
from efo_service.object_store.remote import explain, open_store
from efo_service.object_store.store import ChangedError, ExistsError, Version
from efo_service.object_store.url import parse_url
from efo_service.relay.errors import StoreDeniedError, StoreError, StoreUnavailableError
from proofs.local_servers.object_stores import ENVIRONMENT


@pytest.fixture
def answer() -> dict:
    return {"status": 200, "code": "", "requests": 0}


@pytest.fixture
def store(answer, monkeypatch) -> Iterator:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer["requests"] += 1
            error = f"<Error><Code>{answer['code']}</Code><Message>why</Message></Error>"
            body = answer.get("body", error.encode())
            self.send_response(answer["status"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        options = {"endpoint": f"http://127.0.0.1:{server.server_port}", "region": "eu-west-1", "allow_http": True}
        yield open_store(parse_url("s3://logs/efo", options))
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "code", "error", "message"),
    [
        (503, "SlowDown", StoreUnavailableError, "503 Service Unavailable: SlowDown: why"),
        (500, "InternalError", StoreUnavailableError, "InternalError"),
        (429, "TooManyRequests", StoreUnavailableError, "429"),
        (403, "AccessDenied", StoreDeniedError, "AccessDenied: why; check the credentials, their rights"),
        (403, "RequestTimeTooSkewed", StoreDeniedError, "RequestTimeTooSkewed: why.*clock"),
        (401, "Unauthorized", StoreDeniedError, "check the credentials"),
        (404, "NoSuchBucket", StoreError, "NoSuchBucket: why; check the name of the bucket"),
        (400, "InvalidRequest", StoreError, "InvalidRequest: why; check"),
        (400, "RequestTimeout", StoreUnavailableError, "RequestTimeout: why"),
        (400, "XAmzContentChecksumMismatch", StoreUnavailableError, "XAmzContentChecksumMismatch: why"),
        (400, "ExpiredToken", StoreDeniedError, "ExpiredToken: why; check the credentials"),
        (501, "NotImplemented", StoreUnavailableError, "NotImplemented"),
    ],
)
def test_each_failure_says_what_is_wrong_and_is_not_repeated(store, answer, status, code, error, message) -> None:
    answer.update(status=status, code=code)
    calls = [lambda: store.create("a", b"x"), lambda: store.get("a")]
    if status != 404:  # the condition on an object that is not there is false
        calls.append(lambda: store.replace("a", b"x", Version('"1"')))
    for number, call in enumerate(calls, 1):
        with pytest.raises(error, match=message) as caught:
            call()
        assert type(caught.value) is error
        assert "s3://logs/efo/a" in str(caught.value)
        assert answer["requests"] == number


@pytest.mark.parametrize(("status", "code"), [(412, "PreconditionFailed"), (409, "ConditionalRequestConflict")])
def test_a_condition_that_is_false_and_a_conflict_are_for_the_caller_to_look_at(store, answer, status, code) -> None:
    answer.update(status=status, code=code)
    with pytest.raises(ExistsError):
        store.create("a", b"x")
    with pytest.raises((ChangedError, StoreUnavailableError)):
        store.replace("a", b"x", Version('"1"'))
    assert answer["requests"] == 2


@pytest.mark.parametrize("body", [b"", b"<!DOCTYPE html><title>Sign in</title>", b"no healthy upstream"])
@pytest.mark.parametrize("status", [400, 403, 404, 405, 302])
def test_a_refusal_of_something_in_between_passes(store, answer, body, status) -> None:
    answer.update(status=status, body=body)
    if status in (403, 404) and not body.startswith(b"<"):
        return  # some stores say no more of these
    for call in (lambda: store.create("a", b"x"), lambda: store.get("a")):
        with pytest.raises(StoreUnavailableError):
            call()


def test_a_missing_object_is_none(store, answer) -> None:
    answer.update(status=404, code="NoSuchKey")
    assert store.get("a") is None
    assert store.head("a", 10) is None


def test_a_store_that_is_not_there_is_waited_for(monkeypatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    options = {"endpoint": "http://127.0.0.1:1", "region": "eu-west-1", "allow_http": True}
    with pytest.raises(StoreUnavailableError, match="cannot read s3://logs/efo/a"):
        open_store(parse_url("s3://logs/efo", options)).get("a")


def test_no_credentials_are_refused_by_name(monkeypatch, tmp_path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"no usable AWS credentials.*set AWS_ACCESS_KEY_ID"):
        open_store(parse_url("s3://logs/efo", {"region": "eu-west-1"}))


def test_a_reason_has_no_signature_of_a_url() -> None:
    text = "Error performing GET https://x/y?sig=secret&se=1 in 2ms - error sending request\n\nDebug source: sig=secret"
    assert explain(text) == (None, "Error performing GET https://x/y?... in 2ms - error sending request")


def test_a_reason_has_no_password_of_an_endpoint() -> None:
    assert explain("no answer from https://user:secret@x/y") == (None, "no answer from https://...@x/y")


def test_a_profile_that_does_not_exist_is_named(monkeypatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nope")
    with pytest.raises(ConfigurationError, match="the AWS configuration: profile nope"):
        open_store(parse_url("s3://logs/efo"))


def test_a_wrong_endpoint_of_the_environment_is_no_panic(monkeypatch) -> None:
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": "localhost:9"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match="check the endpoint, also in the environment") as caught:
        open_store(parse_url("s3://logs/efo", {"region": "eu-west-1"})).get("a")
    assert not caught.value.retryable


# --- proxies and authorities -----------------------------------------------------------------------------------


@pytest.fixture
def proxy(monkeypatch) -> Iterator:
    """Run a proxy that answers each request with 404; yield its URL, and what was asked of it."""
    for name in urllib.request.getproxies_environment():
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            asked.append((self.requestline.split()[1], self.headers.get("Proxy-Authorization")))
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_CONNECT = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://user:hunter2@127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


URLS = {
    "s3": ("s3://logs/efo", {"region": "eu-west-1", "endpoint": "https://store.test"}),
    "gs": ("gs://logs/efo", {}),
    "az": ("az://logs/efo", {"account_name": "account"}),
}
AUTHORIZATION = "Basic dXNlcjpodW50ZXIy"


def try_to_read(url: str, options: dict) -> str:
    with pytest.raises((StoreError, StoreUnavailableError)) as failed:
        open_store(parse_url(url, {"timeout_seconds": 2, **options})).get("a")
    return str(failed.value)


@pytest.mark.parametrize("by", ["variable", "setting"])
def test_a_store_is_reached_through_the_proxy(proxy, monkeypatch, by) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    url, asked = proxy
    place, options = URLS["s3"]
    if by == "variable":
        monkeypatch.setenv("HTTPS_PROXY", url)
    else:
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", "*")
        options = {**options, "proxy_url": url}
    assert "hunter2" not in try_to_read(place, options)
    assert asked == [("store.test:443", AUTHORIZATION)]


@pytest.mark.parametrize("by", ["setting", "no_proxy", "network", "all_proxy"])
def test_a_store_is_reached_directly(store, answer, proxy, monkeypatch, by) -> None:
    url, asked = proxy
    answer.update(status=404, code="NoSuchKey")
    options = {**store.url.options}
    if by == "all_proxy":
        monkeypatch.setenv("ALL_PROXY", url)
    else:
        monkeypatch.setenv("HTTP_PROXY", url)
    if by == "setting":
        options["proxy_url"] = ""
    elif by == "no_proxy":
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    elif by == "network":  # obstore knows networks, other than botocore
        monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
    assert open_store(parse_url("s3://logs/efo", options)).get("a") is None
    assert (asked, answer["requests"]) == ([], 1)


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_the_metadata_of_the_machine_is_never_asked_by_a_proxy(proxy, monkeypatch, scheme) -> None:
    url, asked = proxy
    monkeypatch.setenv("HTTP_PROXY", url)
    monkeypatch.setenv("HTTPS_PROXY", url)
    try_to_read(*URLS[scheme])
    assert [target for target, _ in asked if "169.254" in target or "metadata" in target] == []


@pytest.mark.parametrize("value", ["socks5://hunter2", "http://user:hunter2"])
def test_a_wrong_proxy_is_refused_without_its_text(monkeypatch, value) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY") as refused:
        open_store(parse_url(*URLS["gs"]))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_the_authorities_of_the_environment_are_trusted_and_checked(monkeypatch, tmp_path, scheme) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    with pytest.raises(ConfigurationError, match=r"cannot use the CA file .*ca\.pem"):
        open_store(parse_url(*URLS[scheme]))
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    open_store(parse_url(*URLS[scheme]))


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_an_empty_variable_of_authorities_is_refused_by_its_name(monkeypatch, scheme) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "")
    with pytest.raises(ConfigurationError, match="REQUESTS_CA_BUNDLE is empty"):
        open_store(parse_url(*URLS[scheme]))
