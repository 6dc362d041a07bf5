"""The way to the service: each obstacle is found by one check, with its remedy."""

import os
import socket
import ssl
import time
from dataclasses import replace

import pytest
import trio
import trustme

from efo.testing import FakeKinesis
from efo_service.exit_codes import Exit
from efo_service.operations.doctor.endpoint import (
    NEEDED,
    CheckedStream,
    endpoint_checks,
    get,
    judge_certificate,
    judge_skew,
    skew_of,
    through,
)
from efo_service.operations.doctor.running import run_checks
from proofs.local_servers.http_proxy import HttpProxy
from tests.loopback import refused_port

NAMES = ["region", "credentials", "dns", "tcp", "tls", "certificate", "http2", "clock"]


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "the-secret",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }.items():
        monkeypatch.setenv(name, value)


def location(url, ca_file=None, *, region="us-east-1", profile=None, role=None, proxy_url=None):
    where = {
        "region": region,
        "endpoint_url": url,
        "ca_file": ca_file and str(ca_file),
        "profile": profile,
        "proxy_url": proxy_url,
    }
    return CheckedStream("orders", where, "[kinesis] region", role)


async def found(place, *, clock=time.time):
    checks = endpoint_checks(place, clock)
    assert [check.name for check in checks] == NAMES
    # The limit only bounds a defect: on a slow machine, a check may take longer than in `efo doctor`.
    return {finding.name: finding.outcome for finding in await run_checks(checks, 60)}


def failures(outcomes):
    return [name for name, outcome in outcomes.items() if outcome.result == "failed"]


@pytest.fixture
async def served():
    async with FakeKinesis(clock=time.time) as fake, fake.serve() as address:
        yield address


async def test_a_service_that_can_be_reached_passes_and_no_secret_is_shown(served):
    outcomes = await found(location(served.url, served.ca_file))
    assert {outcome.result for outcome in outcomes.values()} == {"passed"}
    assert outcomes["region"].detail == f"us-east-1, from [kinesis] region; the endpoint is {served.url}"
    assert outcomes["credentials"].detail == "found in the environment"
    assert str(served.ca_file) in outcomes["tls"].detail
    assert "valid until" in outcomes["certificate"].detail
    assert "the-secret" not in str(outcomes)
    assert "AKIDEXAMPLE" not in str(outcomes)


async def test_without_a_region_nothing_else_is_tested():
    outcomes = await found(location(None, region=None))
    assert failures(outcomes) == ["region"]
    assert outcomes["region"].code == Exit.CONFIGURATION
    assert outcomes["region"].remedy.startswith("set region or AWS_REGION")
    assert {outcome.detail for name, outcome in outcomes.items() if name != "region"} == {"region failed"}


async def test_missing_credentials_are_the_only_failure(served, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    outcomes = await found(location(served.url, served.ca_file))
    assert failures(outcomes) == ["credentials"]
    assert outcomes["credentials"].code == Exit.CONFIGURATION
    assert "AWS_ACCESS_KEY_ID" in outcomes["credentials"].remedy


async def test_the_provider_of_a_profile_is_named(served, tmp_path):
    (tmp_path / "credentials").write_text("[ops]\naws_access_key_id = AKID\naws_secret_access_key = the-secret\n")
    outcomes = await found(location(served.url, served.ca_file, profile="ops"))
    assert outcomes["credentials"].detail == "found in the shared credentials file"


async def test_an_unknown_profile_is_a_wrong_configuration(served):
    outcomes = await found(location(served.url, served.ca_file, profile="nobody"))
    assert failures(outcomes) == ["credentials"]
    assert outcomes["credentials"].code == Exit.CONFIGURATION
    assert "nobody" in outcomes["credentials"].detail


async def test_a_name_that_does_not_resolve_fails_dns_alone(monkeypatch):
    async def getaddrinfo(host, *_args, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(trio.socket, "getaddrinfo", getaddrinfo)
    outcomes = await found(location("https://no-such-host.invalid"))
    assert failures(outcomes) == ["dns"]
    assert outcomes["dns"].detail == "cannot resolve no-such-host.invalid: Name or service not known"
    assert "resolver" in outcomes["dns"].remedy
    assert outcomes["clock"].detail == "dns failed"


async def test_a_closed_port_fails_tcp_alone():
    with refused_port() as port:
        outcomes = await found(location(f"https://127.0.0.1:{port}"))
    assert failures(outcomes) == ["tcp"]
    assert f"127.0.0.1 port {port}" in outcomes["tcp"].detail
    assert outcomes["tcp"].code == Exit.UNAVAILABLE
    assert "firewall" in outcomes["tcp"].remedy


async def test_a_certificate_of_another_authority_fails_tls_alone(served, tmp_path):
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    outcomes = await found(location(served.url, other))
    assert failures(outcomes) == ["tls"]
    assert outcomes["tls"].remedy == "set ca_file to the authority that signed it"
    assert outcomes["http2"].detail == "tls failed"


async def test_a_ca_file_without_certificates_is_a_wrong_configuration(served, tmp_path):
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    outcomes = await found(location(served.url, empty))
    assert failures(outcomes) == ["tls"]
    assert outcomes["tls"].code == Exit.CONFIGURATION
    assert str(empty) in outcomes["tls"].detail


async def test_a_server_that_hangs_in_the_handshake_fails_tls_in_time(tmp_path):
    ca_file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(ca_file)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections wait in its backlog
        checks = {c.name: c for c in endpoint_checks(location(f"https://127.0.0.1:{silent.getsockname()[1]}", ca_file))}
        await checks["region"].run()
        [finding] = await run_checks([replace(checks["tls"], needs=())], 0.01)
    assert finding.outcome.result == "failed"
    assert finding.outcome.detail == "no result within 0.01 s"
    assert "firewall" in finding.outcome.remedy


async def test_a_server_without_http2_fails_tls_and_says_why(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["http/1.1"])

    async def handle(stream):
        tls = trio.SSLStream(stream, context, server_side=True)
        try:
            await tls.do_handshake()
            await tls.receive_some()
        except trio.BrokenResourceError:
            await trio.aclose_forcefully(stream)

    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        port = listener.socket.getsockname()[1]
        outcomes = await found(location(f"https://127.0.0.1:{port}", tmp_path / "ca.pem"))
        nursery.cancel_scope.cancel()
    assert failures(outcomes) == ["tls"]
    assert "HTTP/2" in outcomes["tls"].detail
    assert outcomes["tls"].remedy == "check endpoint_url, and proxies in between"


async def test_without_tls_http2_is_tested_all_the_same():
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
        outcomes = await found(location(address.url))
    assert {name for name, outcome in outcomes.items() if outcome.result == "not tested"} == {"tls", "certificate"}
    assert failures(outcomes) == []
    assert outcomes["http2"].result == "passed"


async def test_a_clock_that_is_wrong_fails_alone(served):
    outcomes = await found(location(served.url, served.ca_file), clock=lambda: time.time() + 400)
    assert failures(outcomes) == ["clock"]
    assert outcomes["clock"].code == Exit.CONFIGURATION


async def test_a_response_that_never_comes_is_bounded_by_the_time_limit_of_the_check(autojump_clock):
    """The server in memory speaks HTTP/2, and the request times out under virtual time."""

    async def connect():
        here, _there = trio.testing.memory_stream_pair()
        return here

    with trio.move_on_after(5) as scope:
        await get(connect, "https", "silent")
    assert scope.cancelled_caught


async def test_a_certificate_that_expires_soon_stops_no_call_yet(served):
    year_3000 = 32_503_680_000.0
    outcomes = await found(location(served.url, served.ca_file), clock=lambda: year_3000 - 1000)
    assert outcomes["certificate"].result == "failed"
    assert outcomes["certificate"].remedy == "renew the certificate on the server"
    assert outcomes["http2"].result == "passed"
    assert "certificate" not in NEEDED
    assert set(NEEDED) <= set(NAMES)


async def test_the_proxy_is_named_and_its_credentials_are_not(tmp_path):
    """Only the proxy knows the name of the endpoint."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with FakeKinesis(clock=time.time) as fake, fake.serve(tls=False) as address:
        proxy = HttpProxy({"kinesis.test": ("127.0.0.1", address.port)}, "user:hunter2", intercepts=authority)
        async with proxy.serve():
            outcomes = await found(location("https://kinesis.test", tmp_path / "ca.pem", proxy_url=proxy.url))
    named = f"127.0.0.1:{proxy.port} (proxy_url)"
    assert failures(outcomes) == []
    assert outcomes["region"].detail.endswith(f"the endpoint is https://kinesis.test, through the proxy {named}")
    assert outcomes["dns"].detail == "127.0.0.1 is 127.0.0.1"
    assert outcomes["tcp"].detail == f"connected to 127.0.0.1 port {proxy.port}, which is the proxy"
    assert outcomes["http2"].result == "passed"
    assert "hunter2" not in str(outcomes)


async def test_a_proxy_that_refuses_fails_tls_alone_with_its_remedy(tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    async with HttpProxy(credentials="user:secret").serve() as proxy:
        place = location("https://kinesis.test", tmp_path / "ca.pem", proxy_url=f"http://127.0.0.1:{proxy.port}")
        outcomes = await found(place)
    assert failures(outcomes) == ["tls"]
    assert outcomes["tls"].code == Exit.CONFIGURATION
    assert "answers 407" in outcomes["tls"].detail
    assert "set its user and password in proxy_url" in f"{outcomes['tls'].detail} {outcomes['tls'].remedy}"


@pytest.mark.parametrize("proxy_url", [None, ""])
def test_a_service_that_is_called_directly_needs_no_words(proxy_url, monkeypatch):
    assert through("https://sts.eu-west-1.amazonaws.com", proxy_url) == ""
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@proxy.test:3128")
    named = "; sts.eu-west-1.amazonaws.com is called through the proxy proxy.test:3128 (HTTPS_PROXY)"
    assert through("https://sts.eu-west-1.amazonaws.com", proxy_url) == ("" if proxy_url == "" else named)


# --- what it means ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skew", "result", "detail"),
    [
        (0.2, "passed", "this host's clock is that of the service"),
        (-59, "passed", "this host's clock is 59 s behind the service"),
        (299, "passed", "this host's clock is 299 s ahead of the service; synchronize it"),
        (300, "failed", "this host's clock is 300 s ahead of the service"),
        (-301, "failed", "this host's clock is 301 s behind the service"),
        (None, "not tested", "the response has no Date header"),
    ],
)
def test_a_clock_may_be_less_than_five_minutes_off(skew, result, detail):
    outcome = judge_skew(skew)
    assert outcome.result == result
    assert outcome.detail.startswith(detail)


@pytest.mark.parametrize(
    ("date", "skew"),
    [
        ("Thu, 01 Jan 1970 00:16:40 GMT", 9.5),
        ("not a date", None),
        ("", None),
    ],
)
def test_the_date_of_a_response_is_half_a_second_old_on_average(date, skew):
    assert skew_of({"date": date}, 1010.0) == skew


@pytest.mark.parametrize(("left", "result"), [(86_399, "failed"), (86_400, "passed")])
def test_a_certificate_must_be_valid_for_another_day(left, result):
    outcome = judge_certificate(1_000_000.0, 1_000_000.0 - left)
    assert outcome.result == result
    assert "1970-01-12T13:46:40+00:00" in outcome.detail
