"""The offsets in a query's checkpoint: those of this source, or of something else. Pure.

Spark stores the offsets of every source as JSON, without its name. So a query may start with a checkpoint that another
source wrote.
"""

from __future__ import annotations

import json
from typing import Any, Final

from efo.errors import ConfigurationError
from efo_service.log.catalog import is_topic_name
from efo_service.spark.source.offsets import TopicPartition, from_json
from efo_service.spark.source.subscription import TopicSelection

_ADVICE: Final = "Set a checkpointLocation of its own for this query, or read what the checkpoint belongs to"


def checkpoint_offsets(value: Any, subscription: TopicSelection, *, all_subscribed: bool) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint.

    `all_subscribed`: refuse those of a partition that is not subscribed. Otherwise they are returned too.
    Raises ConfigurationError: what the checkpoint has, whose it may be, what to do.
    """
    try:
        offsets = from_json(value)
    except (ValueError, AttributeError, TypeError):
        offsets = None
    if offsets is None or not all(map(_is_ours, offsets.items())):
        raise ConfigurationError(
            f'the checkpoint of this query has no offsets of format("efo"), but {json.dumps(value)[:200]}:'
            f" {_whose(value)} wrote it. {_ADVICE}"
        )
    topics = {tp.topic for tp in offsets}
    if all_subscribed and (strangers := sorted(topics - set(subscription.select(topics)))):
        raise ConfigurationError(
            f"the checkpoint of this query has offsets of topics to which it is not subscribed"
            f" ({', '.join(strangers)[:200]}): another query wrote it, or the subscription was changed. {_ADVICE}."
            " failOnDataLoss=false goes on without these topics"
        )
    if all_subscribed and (others := sorted(tp for tp in offsets if not subscription.includes(tp))):
        raise ConfigurationError(
            f"the checkpoint of this query has an offset of partition {others[0].partition} of {others[0].topic}, which"
            f" is not assigned: another query wrote it, or assign was changed. {_ADVICE}."
            " failOnDataLoss=false goes on without it"
        )
    return offsets


def _is_ours(entry: tuple[TopicPartition, Any]) -> bool:
    (topic, partition), offset = entry
    return is_topic_name(topic) and partition >= 0 and type(offset) is int and offset >= 0


def _whose(value: Any) -> str:
    """Return what may have written these offsets. The forms are those of Spark 4.3 and of Delta Lake."""
    if isinstance(value, int):
        return "another source, such as rate or socket,"
    if isinstance(value, dict) and "logOffset" in value:
        return "a source of files, such as text or parquet,"
    if isinstance(value, dict) and "reservoirId" in value:
        return "Delta Lake"
    return "another source, or a newer efo,"
