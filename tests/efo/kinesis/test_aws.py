"""The client of AWS: TLS and ALPN, SigV4, the control plane, and the translation of botocore's exceptions."""

import errno
import hashlib
import hmac
import json
import socket
import ssl
import time
import traceback
from contextlib import suppress
from datetime import UTC, datetime

import botocore.exceptions
import pytest
import trio
import trustme
from botocore.credentials import ReadOnlyCredentials
from botocore.parsers import ResponseParserError

from efo.aws.clock import ServiceClock
from efo.errors import (
    AccessDeniedError,
    ClockSkewError,
    ConfigurationError,
    ConnectError,
    CredentialsError,
    InternalFailureError,
    NameResolutionError,
    NotHttp2Error,
    ProtocolError,
    ResourceInUseError,
    ResourceNotFoundError,
    ServiceError,
    ThrottledError,
    TlsError,
    TransportError,
)
from efo.kinesis.aws.client import Signer, open_kinesis
from efo.kinesis.aws.connector import Connector
from efo.kinesis.aws.control_plane import AwsControlPlane
from efo.kinesis.aws.errors import translated
from efo.model import FanOutConsumer, HashKeyRange, Shard, StreamDescription
from tests.loopback import listening, tls_handler

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
SECRET = "hunter2"


async def close(stream):
    await stream.aclose()


def resolving(monkeypatch, result):
    """Let each name have these addresses, with their ports; or raise or await the result."""

    async def getaddrinfo(*_args, **_options):
        if callable(result):
            await result()
        await trio.lowlevel.checkpoint()
        if isinstance(result, Exception):
            raise result
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in result]

    monkeypatch.setattr("trio._highlevel_open_tcp_stream.getaddrinfo", getaddrinfo)


class TestConnector:
    async def test_tls_and_http2_are_negotiated(self, authority, ca_file):
        async with listening(tls_handler(authority, ["h2"])) as port:
            stream = await Connector("127.0.0.1", port, ca_file=ca_file).connect()
            await stream.send_all(b"hello")
            assert await stream.receive_some(5) == b"hello"
            await trio.aclose_forcefully(stream)

    @pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
    async def test_a_server_without_http2_is_an_error(self, authority, ca_file, alpn):
        async with listening(tls_handler(authority, alpn)) as port:
            with pytest.raises(NotHttp2Error, match=rf"127\.0\.0\.1:{port} .* HTTP/2"):
                await Connector("127.0.0.1", port, ca_file=ca_file).connect()

    async def test_a_certificate_of_an_unknown_authority_is_not_trusted(self, ca_file):
        async with listening(tls_handler(trustme.CA(), ["h2"])) as port:
            with pytest.raises(TlsError, match=r"certificate of 127\.0\.0\.1:\d+ is not trusted.*set ca_file"):
                await Connector("127.0.0.1", port, ca_file=ca_file).connect()

    @pytest.mark.parametrize(("years", "advice"), [((2000, 2001), "renew the cert"), ((2100, 2101), "not valid yet")])
    async def test_a_certificate_that_is_not_valid_now_needs_no_ca_file(self, authority, ca_file, years, advice):
        before, after = (datetime(year, 1, 1, tzinfo=UTC) for year in years)
        certificate = authority.issue_cert("127.0.0.1", not_before=before, not_after=after)
        async with listening(tls_handler(authority, ["h2"], certificate=certificate)) as port:
            with pytest.raises(TlsError, match=f"is not trusted.*{advice}") as raised:
                await Connector("127.0.0.1", port, ca_file=ca_file).connect()
        assert "ca_file" not in str(raised.value)

    async def test_a_certificate_of_another_host_is_not_trusted(self, authority, ca_file):
        async with listening(tls_handler(authority, ["h2"], "elsewhere.test")) as port:
            with pytest.raises(TlsError, match=r"not trusted.* it is for another address: check endpoint_url"):
                await Connector("127.0.0.1", port, ca_file=ca_file).connect()

    async def test_a_server_that_speaks_plain_http_is_an_error(self, ca_file):
        async def handle(stream):
            async with stream:
                await stream.receive_some()
                await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        async with listening(handle) as port:
            with pytest.raises(NotHttp2Error, match="does not speak TLS"):
                await Connector("127.0.0.1", port, ca_file=ca_file).connect()

    async def test_a_connection_that_closes_in_the_handshake_is_a_retryable_error(self, ca_file):
        async def handle(stream):
            await stream.receive_some()
            await stream.aclose()

        async with listening(handle) as port:
            with pytest.raises(TransportError, match=r"TLS handshake with 127\.0\.0\.1:\d+ failed") as raised:
                await Connector("127.0.0.1", port, ca_file=ca_file).connect()
            assert raised.value.retryable

    @pytest.mark.parametrize("encrypted", [True, False], ids=["TLS", "plain"])
    async def test_a_closed_port_is_a_retryable_error(self, ca_file, encrypted):
        async with listening(None) as port:
            pass
        with pytest.raises(TransportError, match=rf"cannot connect to 127\.0\.0\.1:{port}") as raised:
            await Connector("127.0.0.1", port, ca_file=ca_file if encrypted else None).connect()
        assert raised.value.retryable

    async def test_a_name_that_does_not_resolve_is_reported_with_the_settings_to_check(self, ca_file, monkeypatch):
        resolving(monkeypatch, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
        with pytest.raises(TransportError, match=r"cannot resolve the name kinesis\.eu-wast-1\.") as raised:
            await Connector("kinesis.eu-wast-1.amazonaws.com", 443, ca_file=ca_file).connect()
        assert str(raised.value).endswith(
            "(Name or service not known): check the region, endpoint_url and the resolver of this host"
        )
        assert raised.value.retryable

    async def test_a_name_that_dns_cannot_have_is_an_error(self, ca_file):
        with pytest.raises(TransportError, match=r"cannot resolve the name kinesis\.\.test \(it is no host name"):
            await Connector("kinesis..test", 443, ca_file=ca_file).connect()

    async def test_a_resolver_that_hangs_is_left_in_time(self, ca_file, monkeypatch, autojump_clock):
        resolving(monkeypatch, trio.sleep_forever)
        with pytest.raises(TransportError, match=r"no connection to kinesis\.test:443: neither its .* within 8 s"):
            await Connector("kinesis.test", 443, ca_file=ca_file).connect()

    async def test_one_of_several_addresses_that_accepts_is_enough(self, monkeypatch):
        async with listening(close) as port:
            resolving(monkeypatch, [("127.0.0.2", port), ("127.0.0.3", port), ("127.0.0.1", port)])
            stream = await Connector("kinesis.test", port, ca_file=None).connect()
            await stream.aclose()
        with pytest.raises(TransportError, match=r"cannot connect to kinesis\.test:\d+: Connection refused$"):
            await Connector("kinesis.test", port, ca_file=None).connect()

    @pytest.mark.parametrize("has_tls", [True, False])
    async def test_a_server_with_tls_is_found_where_the_url_has_none(self, authority, has_tls):
        handle = tls_handler(authority, ["h2"]) if has_tls else close
        async with listening(handle) as port:
            checking = Connector("127.0.0.1", port, ca_file=None).check_scheme()
            if not has_tls:
                await checking
                return
            with pytest.raises(
                NotHttp2Error, match="speaks TLS, but endpoint_url is http://: write https://"
            ) as raised:
                await checking
            assert not raised.value.speaks_http1

    async def test_without_tls_the_tcp_stream_is_returned(self):
        async def handle(stream):
            await stream.send_all(b"plain")

        async with listening(handle) as port:
            stream = await Connector("127.0.0.1", port, ca_file=None).connect()
            assert await stream.receive_some(5) == b"plain"
            await stream.aclose()

    async def test_a_cancellation_in_the_handshake_closes_the_socket(self, ca_file):
        reached, closed = trio.Event(), trio.Event()

        async def handle(stream):
            await stream.receive_some()
            reached.set()
            with suppress(trio.BrokenResourceError):  # the connection ends with a reset or with EOF
                while await stream.receive_some():
                    pass
            closed.set()

        async with listening(handle) as port:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Connector("127.0.0.1", port, ca_file=ca_file).connect)
                await reached.wait()
                nursery.cancel_scope.cancel()
            with trio.fail_after(30):
                await closed.wait()

    @pytest.mark.parametrize("content", [None, "this is not a certificate"])
    def test_an_unusable_ca_file_is_rejected(self, tmp_path, content):
        path = tmp_path / "ca.pem"
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigurationError, match=r"cannot use the CA file .*ca\.pem"):
            Connector("127.0.0.1", 1, ca_file=str(path))


class Source:
    """A CredentialSource that always has these credentials."""

    def __init__(self, credentials):
        self._credentials = credentials

    async def get(self):
        await trio.lowlevel.checkpoint()
        return self._credentials


STATIC = ReadOnlyCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", None)
TEMPORARY = ReadOnlyCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", "a/session+token==")


def signature(secret, date, region, headers, body):
    """Return the scope, the signed headers and the signature (SigV4) of a POST to /.

    Independent of botocore: it follows the description by AWS and uses only the standard library.
    """
    names = ";".join(sorted(headers))
    canonical = "\n".join(
        ("POST", "/", "", *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names,
         hashlib.sha256(body).hexdigest())
    )  # fmt: skip
    scope = f"{date[:8]}/{region}/kinesis/aws4_request"
    to_sign = "\n".join(("AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), to_sign):
        key = hmac.digest(key, part.encode(), "sha256")
    return scope, names, key.hex()


class TestSigner:
    TARGET = "Kinesis_20131202.SubscribeToShard"
    BODY = b'{"ShardId":"shardId-000000000000"}'

    @pytest.mark.parametrize("credentials", [STATIC, TEMPORARY])
    @pytest.mark.parametrize(
        ("url", "host"),
        [
            ("https://kinesis.eu-central-1.amazonaws.com", "kinesis.eu-central-1.amazonaws.com"),
            ("https://127.0.0.1:4567", "127.0.0.1:4567"),
            ("http://localhost:80/", "localhost"),
        ],
    )
    async def test_the_signature_is_that_of_the_aws_description(self, credentials, url, host):
        signer = Signer(Source(credentials), ServiceClock(), url, "eu-central-1")
        headers = dict(await signer.sign(self.TARGET, self.BODY))
        # The headers of the request. SubscribeCaller adds those that the signer does not return.
        signed_headers = {
            "content-type": "application/x-amz-json-1.1",
            "host": host,
            "x-amz-date": headers["X-Amz-Date"],
            "x-amz-target": self.TARGET,
        }
        if credentials.token:
            signed_headers["x-amz-security-token"] = headers["X-Amz-Security-Token"]
            assert headers["X-Amz-Security-Token"] == credentials.token
        scope, names, expected = signature(
            credentials.secret_key, headers["X-Amz-Date"], "eu-central-1", signed_headers, self.BODY
        )
        assert headers["Authorization"] == (
            f"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{scope}, SignedHeaders={names}, Signature={expected}"
        )
        assert headers.keys() <= {"Authorization", "X-Amz-Date", "X-Amz-Security-Token"}

    async def test_it_signs_at_the_services_time(self):
        clock = ServiceClock(lambda: 1_000_000_000.0)
        clock.correct(ClockSkewError("RequestTimeTooSkewed", "", service_time=1_000_000_600.0))
        headers = dict(await Signer(Source(STATIC), clock, "https://localhost", "eu-central-1").sign(self.TARGET, b""))
        assert headers["X-Amz-Date"] == "20010909T015640Z"


def unreachable(cause: OSError) -> botocore.exceptions.EndpointConnectionError:
    """Return what botocore raises if its HTTP client, which has exceptions of its own, cannot connect."""
    try:
        try:
            raise cause
        except OSError as error:
            raise RuntimeError(SECRET) from error
    except RuntimeError as of_client:
        return botocore.exceptions.EndpointConnectionError(endpoint_url=f"https://x/{SECRET}", error=of_client)


class TestTranslation:
    @pytest.mark.parametrize(
        ("error", "kind", "message"),
        [
            (botocore.exceptions.NoRegionError(), ConfigurationError, "AWS_REGION"),
            (botocore.exceptions.ProfileNotFound(profile="nobody"), ConfigurationError, "profile nobody"),
            (botocore.exceptions.ParamValidationError(report=SECRET), ConfigurationError, "ParamValidationError"),
            (ValueError(SECRET), ConfigurationError, "ValueError"),
            (
                botocore.exceptions.EndpointConnectionError(endpoint_url=f"https://u:{SECRET}@host/x?y={SECRET}"),
                TransportError,
                "control plane at host cannot be reached",
            ),
            (
                unreachable(socket.gaierror(socket.EAI_NONAME, "Name or service not known")),
                NameResolutionError,
                "control plane at x cannot be reached: the name of the host was not resolved",
            ),
            (
                unreachable(ConnectionRefusedError(errno.ECONNREFUSED, SECRET)),
                ConnectError,
                "control plane at x cannot be reached: Connection refused",
            ),
            (
                unreachable(ssl.SSLEOFError(SECRET)),
                TransportError,
                "at x cannot be reached",
            ),
            (
                botocore.exceptions.ReadTimeoutError(endpoint_url="https://x"),
                TransportError,
                "at x cannot be reached: ReadTimeoutError",
            ),
            (botocore.exceptions.HTTPClientError(error=SECRET), TransportError, "cannot be reached"),
            (
                botocore.exceptions.HTTPClientError(error=OSError(errno.ECONNRESET, "Connection reset by peer")),
                TransportError,
                "Connection reset by peer",
            ),
            (
                botocore.exceptions.SSLError(endpoint_url="https://x", error=ssl.SSLCertVerificationError("unknown")),
                TlsError,
                "at x cannot be reached: its certificate is not trusted.*set ca_file",
            ),
            (
                botocore.exceptions.SSLError(endpoint_url="https://x", error=ssl.SSLEOFError(SECRET)),
                TransportError,
                "SSLEOFError",
            ),
            (
                ResponseParserError(f"invalid XML received: {SECRET}"),
                TransportError,
                "an answer that is none of its own",
            ),
            (AttributeError(SECRET), TransportError, "an answer that is none of its own"),
        ],
    )
    def test_exceptions_of_a_call_are_translated_without_their_texts(self, error, kind, message):
        with pytest.raises(kind, match=message) as raised, translated():
            raise error
        assert type(raised.value) is kind
        assert SECRET not in "".join(traceback.format_exception(raised.value))

    def test_errors_of_efo_pass(self):
        error = CredentialsError("no")
        with pytest.raises(CredentialsError) as raised, translated():
            raise error
        assert raised.value is error

    @pytest.mark.parametrize(
        ("code", "status", "kind"),
        [
            ("ResourceInUseException", 400, ResourceInUseError),
            ("LimitExceededException", 400, ThrottledError),
            ("AccessDeniedException", 403, AccessDeniedError),
            ("InternalFailure", 500, InternalFailureError),
            ("503", 503, InternalFailureError),
            ("ValidationException", 400, ServiceError),
        ],
    )
    def test_error_responses_are_translated_to_service_errors(self, code, status, kind):
        response = {
            "Error": {"Code": code, "Message": "because"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        with pytest.raises(ServiceError) as raised, translated():
            raise botocore.exceptions.ClientError(response, "ListShards")
        error = raised.value
        assert (type(error), error.code, error.message, error.status) == (kind, code, "because", status)

    def test_an_error_response_without_a_code_is_an_unknown_service_error(self):
        with pytest.raises(ServiceError, match="UnknownError"), translated():
            raise botocore.exceptions.ClientError({}, "ListShards")

    def test_an_html_page_is_reported_as_another_endpoint(self):
        response = {
            "Error": {"Code": "404", "Message": "<html>\n not found"},
            "ResponseMetadata": {"HTTPStatusCode": 404},
        }
        with pytest.raises(TransportError, match=r"HTTP 404.*check endpoint_url"), translated():
            raise botocore.exceptions.ClientError(response, "ListShards")


class ScriptedAiobotocore:
    """Returns these responses, and records its calls."""

    region = "us-east-1"

    def __init__(self, *responses, date=None):
        self._responses = list(responses)
        self._date = date
        self.calls = []

    async def call(self, operation, **arguments):
        await trio.lowlevel.checkpoint()
        self.calls.append((operation, arguments))
        headers = {} if self._date is None else {"date": self._date}
        return self._responses.pop(0) | {"ResponseMetadata": {"HTTPHeaders": headers}}


class ScriptedReads:
    """Reads without aiobotocore: returns or raises these results, and records its calls."""

    def __init__(self, *results, date=""):
        self._results = list(results)
        self._date = date
        self.calls = []

    async def read(self, operation, arguments):
        await trio.lowlevel.checkpoint()
        self.calls.append((operation, arguments))
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result, {"date": self._date}


def through_aiobotocore(client, arn=None):
    """Return a control plane whose own connection never works."""
    return AwsControlPlane(client, ScriptedReads(*[TransportError("no connection")] * 9), "orders", arn)


def reading(*results, arn=None, date="", aiobotocore=None):
    """Return a control plane and its reads. Calls of aiobotocore fail unless it is given."""
    reads = ScriptedReads(*results, date=date)
    return AwsControlPlane(aiobotocore or ScriptedAiobotocore(), reads, "orders", arn), reads


def listed(number, **members):
    item = {
        "ShardId": f"shardId-{number}",
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
        "SequenceNumberRange": {"StartingSequenceNumber": "1"},
    }
    return item | members


SUMMARY = {
    "StreamDescriptionSummary": {
        "StreamName": "orders", "StreamARN": ARN, "StreamStatus": "ACTIVE", "RetentionPeriodHours": 48,
    }
}  # fmt: skip
CONSUMER = {"ConsumerName": "app", "ConsumerARN": ARN + "/consumer/app:1", "ConsumerStatus": "ACTIVE"}


class TestControlPlane:
    @pytest.mark.parametrize(
        ("arn", "stream"), [(None, {"StreamName": "orders"}), (ARN, {"StreamARN": ARN})], ids=["name", "ARN"]
    )
    async def test_calls_use_the_arn_of_the_stream_if_it_is_known(self, arn, stream):
        client, (control, reads) = ScriptedAiobotocore(SUMMARY), reading(SUMMARY, arn=arn)
        described = StreamDescription("orders", ARN, "ACTIVE", 48)
        assert await through_aiobotocore(client, arn).describe_stream() == described
        assert await control.describe_stream() == described
        assert client.calls == [("describe_stream_summary", stream)]
        assert reads.calls == [("DescribeStreamSummary", stream)]

    async def test_all_pages_of_shards_are_read_and_the_token_is_sent_alone(self):
        closed = listed(
            1,
            SequenceNumberRange={"StartingSequenceNumber": "1", "EndingSequenceNumber": "7"},
            ParentShardId="p",
            AdjacentParentShardId="q",
        )
        pages = [{"Shards": [listed(0)], "NextToken": "t1"}, {"Shards": [], "NextToken": "t2"}, {"Shards": [closed]}]
        client, (control, reads) = ScriptedAiobotocore(*pages), reading(*pages)
        keys = HashKeyRange("0", "9")
        for shards in (await through_aiobotocore(client).list_shards(), await control.list_shards()):
            assert shards == [Shard("shardId-0", keys, "1"), Shard("shardId-1", keys, "1", "7", "p", "q")]
        arguments = [{"StreamName": "orders"}, {"NextToken": "t1"}, {"NextToken": "t2"}]
        assert client.calls == [("list_shards", each) for each in arguments]
        assert reads.calls == [("ListShards", each) for each in arguments]

    @pytest.mark.parametrize(
        "failure",
        [
            TransportError("no connection"),
            NotHttp2Error("HTTP/1 only"),
            ProtocolError("no JSON"),
            ThrottledError("LimitExceededException", ""),
            AccessDeniedError("AccessDeniedException", ""),
        ],
    )
    async def test_a_read_that_fails_is_repeated_through_aiobotocore(self, failure):
        client = ScriptedAiobotocore({"Shards": []}, {"Shards": []})
        control, reads = reading(failure, failure, aiobotocore=client)
        assert [await control.list_shards(), await control.list_shards()] == [[], []]
        assert (len(reads.calls), len(client.calls)) == (2, 2)

    async def test_a_read_of_something_that_does_not_exist_is_not_repeated(self):
        control, _ = reading(ResourceNotFoundError("ResourceNotFoundException", "no consumer"))
        with pytest.raises(ResourceNotFoundError, match="no consumer"):
            await control.describe_consumer(ARN, "app")

    async def test_the_two_calls_of_a_start_say_the_same_of_a_stream_that_does_not_exist(self):
        missing = ResourceNotFoundError("ResourceNotFoundException", "Stream orders not found.")
        control, _ = reading(missing, missing)
        messages = set()
        for call in (control.describe_stream, control.list_shards):
            with pytest.raises(ResourceNotFoundError, match="not found; check its name, the region") as caught:
                await call()
            messages.add(str(caught.value))
        assert len(messages) == 1  # of failures that say the same, one is reported

    async def test_a_read_without_credentials_is_not_repeated(self):
        control, _ = reading(ConfigurationError("no usable AWS credentials"))
        with pytest.raises(ConfigurationError, match="credentials"):
            await control.describe_stream()

    async def test_consumers_are_described_registered_and_deregistered(self):
        client = ScriptedAiobotocore(
            {"ConsumerDescription": CONSUMER}, {"Consumer": CONSUMER | {"ConsumerStatus": "CREATING"}}, {}
        )
        control = through_aiobotocore(client)
        arn = CONSUMER["ConsumerARN"]
        assert await control.describe_consumer(ARN, "app") == FanOutConsumer("app", arn, "ACTIVE")
        assert await control.register_consumer(ARN, "app") == FanOutConsumer("app", arn, "CREATING")
        await control.deregister_consumer(arn)
        assert client.calls == [
            ("describe_stream_consumer", {"StreamARN": ARN, "ConsumerName": "app"}),
            ("register_stream_consumer", {"StreamARN": ARN, "ConsumerName": "app"}),
            ("deregister_stream_consumer", {"ConsumerARN": arn}),
        ]

    async def test_the_service_time_follows_the_date_header(self):
        date = "Thu, 01 Jan 2026 00:00:00 GMT"
        called = through_aiobotocore(ScriptedAiobotocore({}, date=date))
        await called.deregister_consumer("x")
        read, _ = reading({"Shards": []}, date=date)
        await read.list_shards()
        assert called.service_time() == pytest.approx(1767225600, abs=60)
        assert read.service_time() == pytest.approx(1767225600, abs=60)

    @pytest.mark.parametrize("date", ["", "yesterday", "Thu, 99 Jan 2026 00:00:00 GMT", None])
    async def test_an_invalid_date_header_is_ignored(self, date):
        control = through_aiobotocore(ScriptedAiobotocore({}, date=date))
        await control.deregister_consumer("x")
        assert control.service_time() == pytest.approx(time.time(), abs=60)


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Return a monkeypatch of an environment without AWS settings."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                 "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return monkeypatch


class TestOpenKinesis:
    @pytest.mark.parametrize(
        ("url", "scheme", "authority"),
        [
            (None, "https", "kinesis.eu-central-1.amazonaws.com"),
            ("https://127.0.0.1:4567", "https", "127.0.0.1:4567"),
            ("https://Localhost:443", "https", "localhost"),
            ("http://[::1]:4567", "http", "[::1]:4567"),
        ],
    )
    async def test_the_authority_is_the_signed_host(self, environment, url, scheme, authority):
        environment.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        async with open_kinesis(ARN, endpoint_url=url) as kinesis:
            assert (kinesis.stream, kinesis.scheme, kinesis.authority) == ("orders", scheme, authority)
            headers = dict(await kinesis.sign("T", b""))
        signed_headers = {
            "content-type": "application/x-amz-json-1.1",
            "host": authority,
            "x-amz-date": headers["X-Amz-Date"],
            "x-amz-target": "T",
        }
        *_, expected = signature("secret", headers["X-Amz-Date"], "eu-central-1", signed_headers, b"")
        assert headers["Authorization"].endswith(f"Signature={expected}")

    async def test_the_credentials_of_a_container_are_used(self, environment):
        """botocore fetches them over HTTP. It must do so on trio, since no asyncio loop runs."""
        document = json.dumps(
            {"AccessKeyId": "AKCONTAINER", "SecretAccessKey": "s", "Token": "t", "Expiration": "2999-01-01T00:00:00Z"}
        ).encode()

        async def handle(stream):
            async with stream:
                await stream.receive_some()
                await stream.send_all(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(document) + document
                )

        async with listening(handle) as port:
            environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{port}/")
            async with open_kinesis(ARN, endpoint_url="https://127.0.0.1:1") as kinesis:
                headers = dict(await kinesis.sign("T", b""))
        assert "Credential=AKCONTAINER/" in headers["Authorization"]
        assert headers["X-Amz-Security-Token"] == "t"

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"stream": "orders"}, "no AWS region"),
            ({"stream": "two words"}, "not the name of a stream"),
            ({"stream": ARN, "profile": "nobody"}, "nobody"),
            ({"stream": ARN, "endpoint_url": "localhost"}, "Invalid endpoint"),
            ({"stream": ARN, "endpoint_url": "https://localhost:99999"}, "not an endpoint"),
            ({"stream": ARN, "endpoint_url": "https://localhost:abc"}, "not an endpoint"),
            ({"stream": ARN, "ca_file": "/nowhere/ca.pem"}, "cannot use the CA file /nowhere/ca.pem"),
            ({"stream": ARN, "ca_file": __file__}, "cannot use the CA file .*test_aws.py"),
        ],
    )
    async def test_wrong_arguments_are_rejected(self, environment, options, message):
        with pytest.raises(ConfigurationError, match=message):
            async with open_kinesis(**options):
                pass

    @pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
    async def test_an_invalid_ca_bundle_of_the_environment_is_rejected_by_its_name(self, environment, name):
        environment.setenv(name, __file__)
        with pytest.raises(
            ConfigurationError, match=rf"cannot use the CA file .*test_aws\.py \({name}\): it has no cert"
        ):
            async with open_kinesis(ARN):
                pass
