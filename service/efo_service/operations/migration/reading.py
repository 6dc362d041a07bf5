"""A snapshot of all rows of an application on a stream; and what two snapshots say about whether it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from efo_service.operations.migration.layout import Found, Heartbeat, Layout, OtherStream, Row, RowError, Scope


@dataclass(frozen=True, slots=True)
class RowsSnapshot:
    """What the rows say.

    `found`: by shard id, with the row. `heartbeats`: rows of workers. `unreadable`: what is wrong, by the row's key.
    `others`: how many rows are not about this application and stream. `other_streams`: those in the same table, by
    their `stream_id`. `stream_id`: as in `Scope`. `problems`: what forbids to use the rows at all.
    """

    found: dict[str, tuple[Row, Found]]
    heartbeats: tuple[Heartbeat, ...]
    unreadable: dict[str, str]
    others: int
    other_streams: tuple[str, ...]
    stream_id: str | None
    problems: tuple[str, ...]


def read_rows(rows: Iterable[Row], layout: Layout, scope: Scope) -> RowsSnapshot:
    """Return what these rows say."""
    found: list[tuple[Row, Found]] = []
    heartbeats: list[Heartbeat] = []
    unreadable: dict[str, str] = {}
    others = 0
    other_streams: set[str] = set()
    for row in rows:
        try:
            match layout.read(row, scope):
                case None:
                    others += 1
                case OtherStream(stream_id):
                    others += 1
                    other_streams.add(stream_id)
                case Heartbeat() as heartbeat:
                    heartbeats.append(heartbeat)
                case shard:
                    found.append((row, shard))
        except RowError as error:
            unreadable[layout.key_of(row)] = str(error)
    streams = {shard.stream_id for _, shard in found}
    problems = [*_several_streams(streams, scope), *_without_streams(streams, scope), *_repeated(found, streams)]
    chosen = [pair for pair in found if scope.stream_id is None or pair[1].stream_id == scope.stream_id]
    return RowsSnapshot(
        found={shard.shard_id: (row, shard) for row, shard in chosen},
        heartbeats=tuple(heartbeats),
        unreadable=unreadable,
        others=others + len(found) - len(chosen),
        other_streams=tuple(sorted(other_streams)),
        stream_id=scope.stream_id or next(iter(streams), None),
        problems=tuple(problems),
    )


def _several_streams(streams: set[str | None], scope: Scope) -> list[str]:
    if scope.stream_id is not None or len(streams) < 2:  # noqa: PLR2004 - several
        return []
    names = ", ".join(sorted("no stream" if stream is None else stream for stream in streams))
    return [f"the rows are of several streams of this name ({names}): choose one with --stream-id"]


def _without_streams(streams: set[str | None], scope: Scope) -> list[str]:
    if scope.stream_id is None or None not in streams:
        return []
    return ["the rows do not name a stream, so that --stream-id selects none of them: leave it out"]


def _repeated(found: list[tuple[Row, Found]], streams: set[str | None]) -> list[str]:
    if len(streams) > 1:
        return []
    counts = Counter(shard.shard_id for _, shard in found)
    return [f"{count} rows are about {shard}: delete all but one" for shard, count in counts.items() if count > 1]


def changes(first: RowsSnapshot, second: RowsSnapshot) -> list[str]:
    """Return what changed between two snapshots, in words: an application that is stopped changes nothing."""
    before, after = _pulses(first), _pulses(second)
    return [
        f"{key}{f' of {owner}' if owner else ''}"
        for key, (pulse, owner) in sorted(after.items())
        if key not in before or before[key][0] != pulse
    ] + [f"{key} (deleted)" for key in sorted(before.keys() - after.keys())]


def _pulses(snapshot: RowsSnapshot) -> dict[str, tuple[object, str | None]]:
    rows: dict[str, tuple[object, str | None]] = {beat.key: (beat.pulse, None) for beat in snapshot.heartbeats}
    rows |= {shard.key: (shard.pulse, shard.owner) for _, shard in snapshot.found.values()}
    return rows | {key: (reason, None) for key, reason in snapshot.unreadable.items()}
