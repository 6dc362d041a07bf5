"""Spark stores the offsets of every source as JSON, without its name. The foreign ones are those of Spark 4.3."""

import json

import pytest
from hypothesis import given, strategies as st

from efo.errors import ConfigurationError
from efo_service.spark.source.checkpoint import checkpoint_offsets
from efo_service.spark.source.offsets import TopicPartition
from efo_service.spark.source.subscription import TopicSelection

ORDERS = TopicSelection(("orders",))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


def test_offsets_of_this_source_are_returned() -> None:
    value = {"orders": {"0": 5, "12": 7}}
    expected = {TopicPartition("orders", 0): 5, TopicPartition("orders", 12): 7}
    assert checkpoint_offsets(value, ORDERS, all_subscribed=True) == expected
    assert checkpoint_offsets({}, ORDERS, all_subscribed=True) == {}


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        ("3", "another source, such as rate or socket, wrote it"),
        ('{"0": {"value": 3, "runTimeMs": 1}}', "another source, or a newer efo, wrote it"),
        ('{"logOffset": 3}', "a source of files, such as text or parquet, wrote it"),
        ('{"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 3}', "Delta Lake wrote it"),
        ('{"metadata": {"streamName": "orders"}}', "another source, or a newer efo, wrote it"),
        ('{":format": 2, "orders": {"0": 5}}', "a newer efo"),
        ('{"orders": {"0": "5"}}', "a newer efo"),
        ('{"orders": {"0": -1}}', "a newer efo"),
        ('{"orders": {"-1": 1}}', "a newer efo"),
        ('{"orders": {"0": true}}', "a newer efo"),
        ("[1, 2]", "a newer efo"),
        ("null", "a newer efo"),
        ('"orders"', "a newer efo"),
    ],
)
def test_offsets_of_another_source_are_refused_with_what_they_are(text, whose) -> None:
    for all_subscribed in (True, False):
        with pytest.raises(ConfigurationError) as raised:
            checkpoint_offsets(json.loads(text), ORDERS, all_subscribed=all_subscribed)
        message = str(raised.value)
        assert message.startswith(f'the checkpoint of this query has no offsets of format("efo"), but {text}: ')
        assert whose in message
        assert "Set a checkpointLocation of its own for this query" in message


def test_a_long_value_is_cut_short() -> None:
    with pytest.raises(ConfigurationError) as raised:
        checkpoint_offsets(["x" * 10_000], ORDERS, all_subscribed=True)
    assert len(str(raised.value)) < 500


@given(JSON)
def test_any_json_is_read_or_refused(value) -> None:
    try:
        offsets = checkpoint_offsets(value, TopicSelection(pattern=".*"), all_subscribed=True)
    except ConfigurationError:
        return
    assert all(offset >= 0 for offset in offsets.values())


@pytest.mark.parametrize(
    ("subscription", "message"),
    [
        (ORDERS, r"topics to which it is not subscribed \(payments, refunds\): another query"),
        (TopicSelection(pattern="pay.*"), r"not subscribed \(refunds\)"),
        (
            TopicSelection(("payments", "refunds"), partitions=frozenset({TopicPartition("payments", 1)})),
            "an offset of partition 0 of payments, which is not assigned",
        ),
    ],
)
def test_offsets_of_what_the_query_does_not_read_are_refused_unless_loss_is_allowed(subscription, message) -> None:
    value = {"payments": {"0": 3}, "refunds": {"2": 4}}
    with pytest.raises(ConfigurationError, match=f"{message}.*failOnDataLoss=false goes on without"):
        checkpoint_offsets(value, subscription, all_subscribed=True)
    assert len(checkpoint_offsets(value, subscription, all_subscribed=False)) == 2
