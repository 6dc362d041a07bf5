"""A record with some data, as a deserializer gets it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import efo


def record_of(data: bytes, **tags: str) -> efo.Record:
    named = tuple((name.replace("content_type", "content-type"), value) for name, value in tags.items())
    return efo.Record("49590", 0.0, data, "customer-1", sub_sequence_number=3, tags=named)


@pytest.fixture
def record() -> Callable[..., efo.Record]:
    return record_of
