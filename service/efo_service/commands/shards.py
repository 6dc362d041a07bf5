"""`efo shards`: the stream's shards as a family tree, with what the leases say of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final

import trio
from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from efo.errors import ServiceError
from efo.kinesis.control_plane import ControlPlane
from efo.leases.store import LeaseStore
from efo_service.commands.operating import show, tell, with_leases
from efo_service.commands.options import ConfigFile, Json
from efo_service.config.settings import Settings
from efo_service.factories.kinesis import open_stream
from efo_service.operations.lineage import Node, family, position_of

_AT_ONCE: Final = 5
"""How many shards are asked at once how far their readers are behind."""


def shards(
    *,
    config: ConfigFile = None,
    lag: Annotated[bool, Parameter(help="Ask Kinesis how far each shard's checkpoint is behind.")] = True,
    as_json: Json = False,
) -> None:
    """Show the stream's shards as a family tree, with state, owner and lag."""

    async def work(settings: Settings, store: LeaseStore) -> tuple[list[Node], Mapping[str, int]]:
        async with open_stream(settings.kinesis) as kinesis:
            leases = {lease.key: lease for lease in await store.list()}
            nodes = family(await kinesis.control.list_shards(), leases)
            return nodes, await _lags(kinesis.control, nodes) if lag else {}

    nodes, lags = with_leases(config, work)
    if as_json:
        tell({"shards": [_values(node, lags) for node in nodes]})
        return
    show(
        f"{len(nodes)} shards",
        ("shard", "state", "owner", "checkpoint", "behind"),
        (
            (
                "  " * node.depth + node.shard_id + _remark(node),
                node.state.replace("_", " "),
                node.owner or "",
                "" if node.checkpoint is None else str(node.checkpoint),
                f"{lags[node.shard_id] / 1000:,.1f} s" if node.shard_id in lags else "",
            )
            for node in nodes
        ),
    )


async def _lags(control: ControlPlane, nodes: Sequence[Node]) -> dict[str, int]:
    """Ask how far the checkpoint of each shard is behind its tip, in milliseconds. What is not told is left out."""
    asked = [(node.shard_id, position) for node in nodes if (position := position_of(node)) is not None]
    lags: dict[str, int] = {}
    console = Console(stderr=True)
    turns = trio.CapacityLimiter(_AT_ONCE)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("asking how far behind", total=len(asked))

        async def ask(shard_id: str, position: Any) -> None:
            async with turns:
                try:
                    lags[shard_id] = await control.behind_latest(shard_id, position)
                except ServiceError as error:  # a shard that is gone, or readers by GetRecords that are throttled
                    progress.console.print(f"{shard_id}: {error}", markup=False)
                progress.advance(task)

        async with trio.open_nursery() as nursery:
            for shard_id, position in asked:
                nursery.start_soon(ask, shard_id, position)
    return lags


def _remark(node: Node) -> str:
    """Say what the place in the tree does not: several parents, no records any more."""
    merged = f" (of {' and '.join(node.parents)})" if len(node.parents) > 1 else ""
    return merged + ("" if node.is_open else " closed" if node.is_listed else " gone")


def _values(node: Node, lags: Mapping[str, int]) -> dict[str, Any]:
    checkpoint = None if node.checkpoint is None else str(node.checkpoint)
    return asdict(node) | {"checkpoint": checkpoint, "millis_behind_latest": lags.get(node.shard_id)}
