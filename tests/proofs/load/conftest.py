from __future__ import annotations

import pytest

from tests.http2_client import Http2Client


@pytest.fixture
def http2_client():
    return Http2Client
