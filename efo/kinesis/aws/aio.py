"""aiobotocore on trio: a session for credentials, and a client of the control plane.

Importing aiobotocore takes longer than everything else at the start. So `lazy.py` imports this module when it needs it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import aiobotocore.config
import aiobotocore.httpxsession
import aiobotocore.session


def make_session(profile: str | None) -> Any:
    """Return a session whose clients, which fetch credentials, run on trio and not on asyncio."""
    session = aiobotocore.session.AioSession(profile=profile)
    session.set_default_client_config(_config())
    return session


def make_client(
    session: Any, region: str, endpoint_url: str | None, ca_file: str | None
) -> AbstractAsyncContextManager[Any]:
    """Return a client of Kinesis that is to be entered. It uses no proxies."""
    client: AbstractAsyncContextManager[Any] = session.create_client(
        "kinesis", region_name=region, endpoint_url=endpoint_url, verify=ca_file, config=_config(proxies={})
    )
    return client


def _config(**options: Any) -> Any:
    return aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        connect_timeout=10,
        read_timeout=20,
        retries={"mode": "standard", "total_max_attempts": 5},
        **options,
    )
