"""Advice by itself; `tests/efo/adapters/test_advice.py` has the situations in which consumers give it."""

from __future__ import annotations

import pytest

from efo import events
from efo.consumer.advice import Advice
from efo.settings import ConsumerSettings


@pytest.mark.parametrize(
    ("shards", "unknown"),
    [(["s-0", "s-7", "s-1"], "s-7"), (["s-0", "s-1"], ""), (None, ""), (lambda _shard: True, "")],
)
def test_ids_of_shards_that_neither_the_stream_nor_a_lease_has_are_named(shards, unknown):
    given: list[events.Event] = []
    advice = Advice(given.append, lambda: 0.0, "app")
    advice.shards_listed("orders", ConsumerSettings(shards=shards), ["s-0"], {"s-1": None})
    texts = [f"shards= names {unknown}, which the stream orders does not have"] if unknown else []
    assert [(event.topic, event.what) for event in given] == [("unknown_shards", text) for text in texts]
