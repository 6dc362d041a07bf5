"""`efo log readers`: the named readers of a topic, for which retention waits."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import trio
from cyclopts import Parameter

from efo_service.commands.common import Yes, confirm
from efo_service.commands.log import Directory, OneTopic, one_topic, readable_log
from efo_service.commands.options import ConfigFile, Json, StreamName
from efo_service.commands.output import format_time, write_json, write_line, write_table
from efo_service.errors import UsageError
from efo_service.log.inspection import inspect_topic
from efo_service.log.reader_offsets import remove_reader


def list_(
    *,
    config: ConfigFile = None,
    stream: StreamName = None,
    directory: Directory = None,
    topic: OneTopic = None,
    as_json: Json = False,
) -> None:
    """List the readers of a topic, and how far each is behind."""
    log = readable_log(config, stream, directory)
    state = inspect_topic(log, one_topic(log, topic))
    if as_json:
        write_json({"log": log.name, "topic": state.topic, "readers": [asdict(reader) for reader in state.readers]})
        return
    write_table(
        f"{len(state.readers)} readers of {log.name}/{state.topic}",
        ("reader", "lag (records)", "committed"),
        (
            (reader.name, f"{reader.lag:,}", format_time(reader.committed_at) or "its file is invalid")
            for reader in state.readers
        ),
    )


def remove(
    reader: Annotated[str, Parameter(help="Name of the reader.")],
    *,
    config: ConfigFile = None,
    stream: StreamName = None,
    directory: Directory = None,
    topic: OneTopic = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Forget a reader that does not come back, so that retention waits for it no more."""
    log = readable_log(config, stream, directory)
    name = one_topic(log, topic)
    known = {state.name: state for state in inspect_topic(log, name).readers}
    if reader not in known:
        raise UsageError(f"{log.name}/{name} has no reader {reader!r}: it has {', '.join(known) or 'none'}")
    found = known[reader]
    since = format_time(found.committed_at)
    when = f", which committed last at {since}" if since else ""
    question = f"forget the reader {reader}{when}, and {found.lag:,} records behind: what it has not read may expire"
    trio.run(partial(confirm, question, yes=yes))
    remove_reader(log, name, reader)
    if as_json:
        write_json({"removed": reader})
    else:
        write_line(f"{reader} was removed: retention waits for it no more")
