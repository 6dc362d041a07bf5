"""PutMetricData, through aiobotocore on trio. Translates the errors of botocore."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import aiobotocore.config
import aiobotocore.httpxsession
import aiobotocore.session
import botocore.exceptions
import trio

from efo.aws.egress import find_authorities, reach_metadata_directly
from efo.aws.wrong_server import unreachable, wrong_content, wrong_server
from efo.errors import ConfigurationError
from efo.proxy import Proxy, default_proxies, find_proxy
from efo.telemetry.cloudwatch.kcl_metrics import Datum

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
                raise PutError("wrong_server", reason) from error
            if not isinstance(error, errors.ClientError):
                raise PutError(type(error).__name__, unreachable(error, self._proxy)) from error
            details = error.response.get("Error", {})
            code, message = str(details.get("Code", "")), " ".join(str(details.get("Message", "")).split())
            raise PutError(code or "service", message, is_final=code in _REFUSALS) from error
        except errors.ParamValidationError as error:
            raise PutError("invalid", str(error), is_final=True) from error
        # Also what botocore has no class for: expired credentials are a RuntimeError, and a proxy's error response may
        # be an AttributeError of its parser. Metrics that are not sent must not end the reading of the stream.
        except Exception as error:
            raise PutError(type(error).__name__, unreachable(error, self._proxy)) from error
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
    try:
        config = aiobotocore.config.AioConfig(
            http_session_cls=aiobotocore.httpxsession.HttpxSession,
            connect_timeout=TIMEOUT,
            read_timeout=TIMEOUT,
            max_pool_connections=1,
            retries={"mode": "standard", "total_max_attempts": 3},
            proxies=default_proxies(endpoint_url or "https://monitoring.amazonaws.com", proxy_url),
        )
        session = aiobotocore.session.AioSession(profile=profile)
        authorities = find_authorities(session, ca_file)
        authorities.check()  # botocore would raise errors of ssl
        session.set_default_client_config(config)  # so that credentials, too, are fetched on trio
        reach_metadata_directly(session)
        context = session.create_client(
            "cloudwatch",
            # botocore reads AWS_DEFAULT_REGION only, but AWS sets AWS_REGION in its containers.
            region_name=region or os.environ.get("AWS_REGION"),
            endpoint_url=endpoint_url,
            verify=authorities.path,
            config=config,
        )
        client = await context.__aenter__()
    except botocore.exceptions.NoRegionError as error:
        raise ConfigurationError("no AWS region for CloudWatch: set region or AWS_REGION") from error
    except (botocore.exceptions.BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"botocore rejects the settings of CloudWatch: {error}") from error
    try:
        yield CloudWatchClient(client, namespace, find_proxy(client.meta.endpoint_url, proxy_url))
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
            await context.__aexit__(None, None, None)


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
