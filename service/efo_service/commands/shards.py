"""`efo shards`: shows the stream's shards as a tree, with the state of their leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final

import trio
from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from efo.checks import printable
from efo.errors import ServiceError
from efo.kinesis.client import ControlPlane
from efo.leases.store import LeaseStore
from efo_service.commands.common import waiting_for, with_lease_store
from efo_service.commands.options import CONFIGURED, Application, Json
from efo_service.commands.output import write_json, write_table
from efo_service.config.settings import Settings
from efo_service.factories.kinesis import open_stream
from efo_service.operations.lineage import ShardNode, position_of, shard_tree

_MAX_CONCURRENT: Final = 5
"""How many lags are requested concurrently."""


def shards(
    *,
    of: Application = CONFIGURED,
    lag: Annotated[bool, Parameter(help="Request the lag of each shard's checkpoint from Kinesis.")] = True,
    as_json: Json = False,
) -> None:
    """Show the stream's shards as a tree, with state, owner, checkpoint and lag."""

    async def work(settings: Settings, store: LeaseStore) -> tuple[list[ShardNode], Mapping[str, int]]:
        async with open_stream(settings.kinesis) as kinesis:
            async with waiting_for("the lease store"):
                leases = {lease.key: lease for lease in await store.list()}
            async with waiting_for("Kinesis to list the shards"):
                nodes = shard_tree(await kinesis.control_plane.list_shards(), leases)
            async with waiting_for("Kinesis to tell the lag of each shard (--no-lag omits it)"):
                return nodes, await _lags(kinesis.control_plane, nodes) if lag else {}

    nodes, lags = with_lease_store(of, work)
    if as_json:
        write_json({"shards": [_values(node, lags) for node in nodes]})
        return
    write_table(
        f"{len(nodes)} shards",
        ("shard", "state", "owner", "checkpoint", "lag"),
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


async def _lags(control_plane: ControlPlane, nodes: Sequence[ShardNode]) -> dict[str, int]:
    """Return the lag of each shard's checkpoint in milliseconds. Shards whose lag is unknown are omitted."""
    positions = [(node.shard_id, position) for node in nodes if (position := position_of(node)) is not None]
    lags: dict[str, int] = {}
    console = Console(stderr=True)
    limiter = trio.CapacityLimiter(_MAX_CONCURRENT)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("requesting the lag of each shard", total=len(positions))

        async def request(shard_id: str, position: Any) -> None:
            async with limiter:
                try:
                    lags[shard_id] = await control_plane.behind_latest(shard_id, position)
                except ServiceError as error:  # the shard is gone, or GetRecords is throttled
                    progress.console.print(printable(f"{shard_id}: {error}"), markup=False)
                progress.advance(task)

        async with trio.open_nursery() as nursery:
            for shard_id, position in positions:
                nursery.start_soon(request, shard_id, position)
    return lags


def _remark(node: ShardNode) -> str:
    """Return what the tree does not show: the parents of a merge, and whether the shard is closed or gone."""
    merged = f" (of {' and '.join(node.parents)})" if len(node.parents) > 1 else ""
    return merged + ("" if node.is_open else " closed" if node.is_listed else " gone")


def _values(node: ShardNode, lags: Mapping[str, int]) -> dict[str, Any]:
    checkpoint = None if node.checkpoint is None else str(node.checkpoint)
    return asdict(node) | {"checkpoint": checkpoint, "millis_behind_latest": lags.get(node.shard_id)}
