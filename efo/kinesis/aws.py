"""AWS itself, or an endpoint that speaks like it: the control plane through aiobotocore, TLS, and SigV4."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import aiobotocore.config
import aiobotocore.httpxsession
import aiobotocore.session
import botocore.auth
import botocore.awsrequest
import botocore.exceptions
import botocore.httpsession
import trio

from efo.arn import parse_stream
from efo.errors import ConfigurationError, EfoError, NotHttp2Error, TlsError, TransportError
from efo.kinesis.client import Kinesis
from efo.model import FanOutConsumer, HashKeyRange, Position, Shard, StreamDescription
from efo.protocol.service_errors import service_error
from efo.tls import client_tls_context

_NO_CREDENTIALS: Final = (
    botocore.exceptions.NoCredentialsError,
    botocore.exceptions.PartialCredentialsError,
    botocore.exceptions.CredentialRetrievalError,
)
_CREDENTIAL_CALLS: Final = {
    "AssumeRole", "AssumeRoleWithSAML", "AssumeRoleWithWebIdentity", "CreateToken", "GetRoleCredentials",
}  # fmt: skip
"""Calls that botocore makes for credentials: what they are refused with says nothing about Kinesis."""


@asynccontextmanager
async def open_kinesis(
    stream: str,
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    ca_file: str | None = None,
    profile: str | None = None,
) -> AsyncIterator[Kinesis]:
    """Open the way to one stream, by its name or its ARN.

    Credentials come from botocore's chain (environment, profile, container, instance). `region`: the ARN's, else
    AWS_REGION, else botocore's. `endpoint_url`: another endpoint than AWS's, `https://` or, without TLS, `http://`.
    `ca_file`: PEM of the authorities to trust, else AWS_CA_BUNDLE, else botocore's. Raises ConfigurationError.

    Kinesis is reached without a proxy, whatever the environment says: subscriptions can go through none, and what
    the control plane tells must be of the endpoint that is read. Credentials' services are reached as botocore does.
    """
    name, arn_region = parse_stream(stream)
    # botocore itself reads AWS_DEFAULT_REGION only; the containers that AWS starts set AWS_REGION.
    region = region or arn_region or os.environ.get("AWS_REGION")
    with _translated():
        session = aiobotocore.session.AioSession(profile=profile)
        bundle = ca_file or session.get_config_variable("ca_bundle")
        if bundle is not None:
            client_tls_context(bundle)  # botocore would raise bare errors of ssl
        # The session's own, too: by it, credentials that are fetched are fetched on trio and not on asyncio.
        session.set_default_client_config(_config())
        client_context = session.create_client(
            "kinesis", region_name=region, endpoint_url=endpoint_url, verify=ca_file, config=_config(proxies={})
        )
        client = await client_context.__aenter__()
    try:
        control = AwsControlPlane(client, name, stream if arn_region else None)
        address = _address(client.meta.endpoint_url)
        host = address.hostname or ""
        port = address.port or (443 if address.scheme == "https" else 80)
        trusted = bundle or botocore.httpsession.get_cert_path(True)
        connector = Connector(host, port, ca_file=trusted if address.scheme == "https" else None)
        authority = _authority(address)
        signer = Signer(session, f"{address.scheme}://{authority}/", client.meta.region_name)
        yield Kinesis(
            stream=name,
            control=control,
            connect=connector.connect,
            sign=signer.sign,
            authority=authority,
            scheme=address.scheme,
            clock=time.time,
            service_time=control.service_time,
        )
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
            await client_context.__aexit__(None, None, None)


def _config(**more: Any) -> Any:
    return aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        connect_timeout=10,
        read_timeout=20,
        retries={"mode": "standard", "total_max_attempts": 5},
        **more,
    )


def _address(url: str) -> SplitResult:
    """Return the parts of an endpoint's URL. Of botocore's checks the port is none."""
    address = urlsplit(url)
    try:
        address.port  # noqa: B018 - a property that raises
    except ValueError as error:
        raise ConfigurationError(f"{url} is no endpoint: {error}") from error
    return address


def _authority(address: SplitResult) -> str:
    """Return the host that requests name, as SigV4 signs it: in lower case, without the scheme's own port."""
    host = (address.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    own = {"https": 443, "http": 80}.get(address.scheme)
    return host if address.port in (None, own) else f"{host}:{address.port}"


class AwsControlPlane:
    """The control plane through an aiobotocore client; implements ControlPlane."""

    def __init__(self, client: Any, name: str, arn: str | None) -> None:
        self._client = client
        self._stream = {"StreamARN": arn} if arn else {"StreamName": name}
        self._skew = 0.0
        self._has_answered = False

    def service_time(self) -> float:
        """Return the service's time, by the `Date` of its last response: seconds since the epoch, never ahead."""
        return time.time() + self._skew

    async def describe_stream(self) -> StreamDescription:
        """Describe the stream (AWS: DescribeStreamSummary)."""
        answer = await self._call("describe_stream_summary", **self._stream)
        summary = answer["StreamDescriptionSummary"]
        return StreamDescription(
            summary["StreamName"], summary["StreamARN"], summary["StreamStatus"], summary["RetentionPeriodHours"]
        )

    async def list_shards(self) -> Sequence[Shard]:
        """List all shards (AWS: ListShards)."""
        return await self._list_shards()

    async def _list_shards(self, **chosen: object) -> Sequence[Shard]:
        """List shards, all pages. NextToken goes alone: with a stream or a filter beside it is refused."""
        answer = await self._call("list_shards", **self._stream, **chosen)
        shards = [_shard(item) for item in answer["Shards"]]
        while token := answer.get("NextToken"):
            answer = await self._call("list_shards", NextToken=token)
            shards += (_shard(item) for item in answer["Shards"])
        return shards

    async def shards_open_at(self, timestamp: float) -> frozenset[str]:
        """List the shards that were open at a time (AWS: ListShards, ShardFilter AT_TIMESTAMP)."""
        chosen = {"ShardFilter": {"Type": "AT_TIMESTAMP", "Timestamp": timestamp}}
        return frozenset(shard.shard_id for shard in await self._list_shards(**chosen))

    async def behind_latest(self, shard_id: str, position: Position) -> int:
        """Tell how far a place in a shard is behind its tip, in milliseconds (AWS: GetRecords)."""
        where = {"StartingSequenceNumber": position.sequence_number, "Timestamp": position.timestamp}
        given = {name: value for name, value in where.items() if value is not None}
        answer = await self._call(
            "get_shard_iterator", **self._stream, ShardId=shard_id, ShardIteratorType=position.type.value, **given
        )
        answer = await self._call("get_records", ShardIterator=answer["ShardIterator"], Limit=1)
        return int(answer["MillisBehindLatest"])

    async def list_consumers(self, stream_arn: str) -> Sequence[FanOutConsumer]:
        """List the stream's consumers, all pages (AWS: ListStreamConsumers)."""
        consumers: list[FanOutConsumer] = []
        more: dict[str, str] = {}
        while True:
            answer = await self._call("list_stream_consumers", StreamARN=stream_arn, **more)
            consumers += (_consumer(item) for item in answer["Consumers"])
            if not (token := answer.get("NextToken")):
                return consumers
            more = {"NextToken": token}

    async def describe_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        """Describe a consumer by its name (AWS: DescribeStreamConsumer)."""
        answer = await self._call("describe_stream_consumer", StreamARN=stream_arn, ConsumerName=name)
        return _consumer(answer["ConsumerDescription"])

    async def register_consumer(self, stream_arn: str, name: str) -> FanOutConsumer:
        """Register a consumer (AWS: RegisterStreamConsumer)."""
        return _consumer(
            (await self._call("register_stream_consumer", StreamARN=stream_arn, ConsumerName=name))["Consumer"]
        )

    async def deregister_consumer(self, consumer_arn: str) -> None:
        """Deregister a consumer (AWS: DeregisterStreamConsumer)."""
        await self._call("deregister_stream_consumer", ConsumerARN=consumer_arn)

    async def _call(self, operation: str, **arguments: object) -> Mapping[str, Any]:
        with _translated(had_credentials=self._has_answered):
            answer: Mapping[str, Any] = await getattr(self._client, operation)(**arguments)
        self._has_answered = True
        with suppress(ValueError):  # a date that is none says nothing
            date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"].get("date", ""))
            self._skew = date.timestamp() - time.time()
        return answer


def _shard(item: Mapping[str, Any]) -> Shard:
    keys, numbers = item["HashKeyRange"], item["SequenceNumberRange"]
    return Shard(
        shard_id=item["ShardId"],
        hash_key_range=HashKeyRange(keys["StartingHashKey"], keys["EndingHashKey"]),
        starting_sequence_number=numbers["StartingSequenceNumber"],
        ending_sequence_number=numbers.get("EndingSequenceNumber"),
        parent_shard_id=item.get("ParentShardId"),
        adjacent_parent_shard_id=item.get("AdjacentParentShardId"),
    )


def _consumer(item: Mapping[str, Any]) -> FanOutConsumer:
    return FanOutConsumer(item["ConsumerName"], item["ConsumerARN"], item["ConsumerStatus"])


class Signer:
    """Signs requests with SigV4 and the session's credentials, refreshed when they run out."""

    def __init__(self, session: Any, url: str, region: str) -> None:
        self._session = session
        self._url = url
        self._region = region
        self._had_credentials = False

    async def sign(self, target: str, body: bytes) -> Sequence[tuple[str, str]]:
        """Return the headers that authenticate a POST.

        Raises ConfigurationError without credentials, and TransportError where they cannot be refreshed for now.
        """
        with _translated(had_credentials=self._had_credentials):
            credentials = await self._session.get_credentials()
            if credentials is None:
                raise botocore.exceptions.NoCredentialsError
            frozen = await credentials.get_frozen_credentials()
        self._had_credentials = True
        request = botocore.awsrequest.AWSRequest(
            method="POST",
            url=self._url,
            data=body,
            headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": target},
        )
        botocore.auth.SigV4Auth(frozen, "kinesis", self._region).add_auth(request)
        names = ("X-Amz-Date", "X-Amz-Security-Token", "Authorization")
        return [(name, request.headers[name]) for name in names if name in request.headers]


class Connector:
    """Connects to a host and agrees on HTTP/2: by ALPN over TLS, or, without `ca_file`, by prior knowledge."""

    def __init__(self, host: str, port: int, *, ca_file: str | None) -> None:
        self._host = host
        self._port = port
        self._tls: ssl.SSLContext | None = None
        if ca_file is not None:
            self._tls = client_tls_context(ca_file)
            self._tls.set_alpn_protocols(["h2"])

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"{self._host}:{self._port}"

    async def connect(self) -> trio.abc.Stream:
        """Return a stream on which the peer awaits HTTP/2. Raises TransportError and its children."""
        try:
            tcp = await trio.open_tcp_stream(self._host, self._port)
        except OSError as error:
            raise TransportError(f"cannot connect to {self.address}: {error}") from error
        if self._tls is None:
            return tcp
        tls = trio.SSLStream(tcp, self._tls, server_hostname=self._host, https_compatible=True)
        try:
            await tls.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(tls)
            raise self._handshake_error(error.__cause__ or error) from error
        except BaseException:
            await trio.aclose_forcefully(tls)
            raise
        chosen = tls.selected_alpn_protocol()
        if chosen != "h2":
            await trio.aclose_forcefully(tls)
            raise NotHttp2Error(
                f"{self.address} does not offer HTTP/2 (ALPN gave {chosen or 'nothing'}), which SubscribeToShard "
                "needs: check endpoint_url, or a proxy in between"
            )
        return tls

    def _handshake_error(self, cause: BaseException) -> TransportError:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return TlsError(
                f"the certificate of {self.address} is not trusted: {cause.verify_message}; "
                "set ca_file to the authority that signed it"
            )
        reason = getattr(cause, "reason", None) or str(cause)
        if reason == "TLSV1_ALERT_NO_APPLICATION_PROTOCOL":
            return NotHttp2Error(f"{self.address} refuses HTTP/2, which SubscribeToShard needs: check endpoint_url")
        if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"}:
            return NotHttp2Error(
                f"{self.address} does not speak TLS, so no HTTP/2 either: check endpoint_url ({reason})"
            )
        return TransportError(f"the TLS handshake with {self.address} failed: {reason}")


@contextmanager
def _translated(*, had_credentials: bool = False) -> Iterator[None]:
    """Turn botocore's exceptions into ours: the one seam to it.

    `had_credentials`: there were some before. That they cannot be had now will pass, and is no wrong setting.
    """
    errors = botocore.exceptions
    try:
        yield
    except errors.ClientError as error:
        if had_credentials and error.operation_name in _CREDENTIAL_CALLS:
            raise TransportError(f"the AWS credentials cannot be refreshed now: {error}") from error
        raise _refusal(error) from error
    except errors.NoRegionError as error:
        raise ConfigurationError("no AWS region: set region, AWS_REGION, or give the stream as an ARN") from error
    except (*_NO_CREDENTIALS, RuntimeError) as error:
        # For credentials that have expired when they are fetched botocore has no class of its own.
        if isinstance(error, RuntimeError) and "expired" not in str(error):
            raise
        if had_credentials:
            raise TransportError(f"the AWS credentials cannot be refreshed now: {error}") from error
        raise ConfigurationError(
            f"no usable AWS credentials: {error}; botocore looks in the environment, ~/.aws, the container's and the "
            "instance's roles"
        ) from error
    except (errors.HTTPClientError, errors.ConnectionError) as error:
        if isinstance(error.kwargs.get("error"), ssl.SSLCertVerificationError):
            raise TlsError(
                f"the certificate of Kinesis' control plane is not trusted: {error}; set ca_file to the authority that "
                "signed it"
            ) from error
        raise TransportError(f"Kinesis' control plane cannot be reached: {error}") from error
    except (errors.BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"botocore refuses the settings: {error}") from error


def _refusal(error: botocore.exceptions.ClientError) -> EfoError:
    """Return what a response other than 200 says."""
    said = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code, message = str(said.get("Code", "")), " ".join(str(said.get("Message", "")).split())
    if code.isdigit() and message.startswith("<"):
        # A page and no JSON: something else listens there, or a proxy answered.
        return TransportError(
            f"the endpoint does not answer as Kinesis does (HTTP {status}): check endpoint_url, and proxies between"
        )
    return service_error(code, message, status)
