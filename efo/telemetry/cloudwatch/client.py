"""PutMetricData, through aiobotocore on trio. Translates the errors of botocore."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import aiobotocore.config
import aiobotocore.httpxsession
import botocore.exceptions

from efo.aws.clock import ServiceClock
from efo.aws.credentials import CredentialSource
from efo.aws.egress import find_authorities
from efo.aws.session import ServiceSession
from efo.aws.wrong_server import unreachable, wrong_content, wrong_server
from efo.errors import ConfigurationError, error_type_of
from efo.protocol.service_errors import service_error
from efo.proxy import Proxy, default_proxies, find_proxy
from efo.telemetry.cloudwatch.kcl_metrics import Datum
from efo.third_party_errors import reason_of

TIMEOUT: Final = 5.0
"""Seconds for one attempt of a call; botocore makes up to three."""
_REFUSALS: Final = frozenset({
    "InvalidParameterValue", "InvalidParameterValueException", "InvalidParameterCombination",
    "InvalidParameterCombinationException", "MissingParameter", "MissingRequiredParameterException", "ValidationError",
})  # fmt: skip


class PutError(Exception):
    """Metrics were not taken. `error_type`: why. `is_final`: these metrics are refused, so a retry is of no use."""

    def __init__(self, error_type: str, detail: str, *, is_final: bool = False) -> None:
        super().__init__(detail)
        self.error_type = error_type
        self.is_final = is_final


class CloudWatchClient:
    """Puts metrics into one namespace."""

    def __init__(self, client: Any, namespace: str, proxy: Proxy | None = None) -> None:
        self._client = client
        self._proxy = proxy
        self._namespace = namespace

    async def put(self, metrics: Sequence[Datum]) -> None:
        """Put metrics, with botocore's retries. Raises PutError."""
        errors = botocore.exceptions
        try:
            response = await self._client.put_metric_data(
                Namespace=self._namespace, MetricData=[_datum(one) for one in metrics]
            )
        except (errors.ClientError, errors.SSLError, errors.ProxyConnectionError) as error:
            if (reason := wrong_server(error, self._proxy)) is not None:
                raise PutError("wrong_server", reason) from None
            if not isinstance(error, errors.ClientError):
                raise PutError(error_type_of(error), unreachable(error, self._proxy)) from None
            details = error.response.get("Error", {})
            code, message = str(details.get("Code", "")), " ".join(str(details.get("Message", "")).split())
            detail = service_error(code, message).message
            raise PutError(code or "service", detail, is_final=code in _REFUSALS) from None
        except errors.ParamValidationError as error:
            raise PutError("invalid", reason_of(error), is_final=True) from None
        # Also what botocore has no class for: a proxy's error response may be an AttributeError of its parser, and
        # credentials. Metrics that are not sent must not end the reading of the stream.
        except Exception as error:  # noqa: BLE001 - see above
            raise PutError(error_type_of(error), unreachable(error, self._proxy)) from None
        if (reason := wrong_content(response)) is not None:
            raise PutError("wrong_server", reason)


@asynccontextmanager
async def open_client(
    namespace: str,
    *,
    region: str | None,
    endpoint_url: str | None,
    ca_file: str | None,
    profile: str | None,
    proxy_url: str | None = None,
) -> AsyncIterator[CloudWatchClient]:
    """Open a client. Raises ConfigurationError. Whether CloudWatch takes metrics, the first call shows."""
    config = aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        connect_timeout=TIMEOUT,
        read_timeout=TIMEOUT,
        max_pool_connections=1,
        retries={"mode": "standard", "total_max_attempts": 3},
        proxies=default_proxies(endpoint_url or "https://monitoring.amazonaws.com", proxy_url),
    )
    region = region or os.environ.get("AWS_REGION")  # botocore reads AWS_DEFAULT_REGION only
    stack = AsyncExitStack()
    try:
        source = CredentialSource(profile, region, proxy_url=proxy_url)
        session = ServiceSession(source, ServiceClock(), profile=profile, region=region, config=config)
        authorities = find_authorities(session, ca_file)
        authorities.check()  # botocore would raise errors of ssl
        client = await stack.enter_async_context(
            session.open_client("cloudwatch", region_name=region, endpoint_url=endpoint_url, verify=authorities.path)
        )
    except botocore.exceptions.NoRegionError:
        raise ConfigurationError("no AWS region for CloudWatch: set region or AWS_REGION") from None
    except (botocore.exceptions.BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"botocore rejects the settings of CloudWatch: {reason_of(error)}") from None
    async with stack:
        yield CloudWatchClient(client, namespace, find_proxy(client.meta.endpoint_url, proxy_url))


def _datum(metric: Datum) -> dict[str, Any]:
    """Return a statistic set as botocore takes it (AWS: MetricDatum)."""
    return {
        "MetricName": metric.name,
        "Unit": metric.unit,
        "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions],
        "Timestamp": datetime.fromtimestamp(metric.timestamp, UTC),
        "StatisticValues": {
            "SampleCount": float(metric.count),
            "Sum": float(metric.total),
            "Minimum": float(metric.minimum),
            "Maximum": float(metric.maximum),
        },
    }
