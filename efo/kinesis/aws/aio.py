"""aiobotocore's client of the control plane.

Importing aiobotocore takes longer than everything else at the start. So `lazy.py` imports this module when it needs it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import aiobotocore.config
import aiobotocore.httpxsession

from efo.aws.clock import ServiceClock
from efo.aws.credentials import CredentialSource
from efo.aws.session import ServiceSession
from efo.kinesis.client import StreamLocation
from efo.proxy import as_mapping, default_proxies, find_proxy


def open_client(
    source: CredentialSource, clock: ServiceClock, where: StreamLocation
) -> AbstractAsyncContextManager[Any]:
    """Return a client of Kinesis that is to be entered. It runs on trio and not on asyncio."""
    region, endpoint_url, proxy_url = where.get("region"), where.get("endpoint_url"), where.get("proxy_url")
    if endpoint_url is None:
        proxies = default_proxies("https://kinesis.amazonaws.com", proxy_url)
    else:
        proxies = as_mapping(find_proxy(endpoint_url, proxy_url))
    config = _config(proxies=proxies)
    session = ServiceSession(source, clock, profile=where.get("profile"), region=region, config=config)
    return session.open_client("kinesis", region_name=region, endpoint_url=endpoint_url, verify=where.get("ca_file"))


def _config(**options: Any) -> Any:
    return aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        connect_timeout=10,
        read_timeout=20,
        retries={"mode": "standard", "total_max_attempts": 5},
        **options,
    )
