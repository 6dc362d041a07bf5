"""`efo consumers`: manages the stream's fan-out consumers."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import trio
from cyclopts import Parameter

from efo.checks import check_tags
from efo.errors import ConfigurationError, ResourceNotFoundError
from efo.kinesis.client import KinesisClient
from efo.kinesis.registration import Registration
from efo.model import FanOutConsumer, Lease
from efo_service.commands.common import Force, Yes, confirm, refuse_living_holders, settings_of
from efo_service.commands.options import CONFIGURED, Application, Json
from efo_service.commands.output import format_time, write_json, write_line, write_note, write_table
from efo_service.config.settings import Settings
from efo_service.errors import NoLeaseStoreError, UsageError
from efo_service.factories.kinesis import open_stream
from efo_service.factories.lease_store import name_of_store, open_existing_leases
from efo_service.operations.lineage import stale

T = TypeVar("T")


def list_(*, of: Application = CONFIGURED, as_json: Json = False) -> None:
    """List the stream's fan-out consumers."""

    async def work(settings: Settings, kinesis: KinesisClient) -> tuple[str, list[FanOutConsumer]]:
        return settings.consumer.fan_out_consumer, await _all(kinesis)

    own, consumers = _with_kinesis(of, work)
    if as_json:
        write_json({"consumers": [_values(consumer) | {"own": consumer.name == own} for consumer in consumers]})
        return
    write_table(
        f"{len(consumers)} fan-out consumers",
        ("name", "status", "registered", "", "ARN"),
        (
            (
                consumer.name,
                consumer.status,
                format_time(consumer.created_at),
                "own" * (consumer.name == own),
                consumer.arn,
            )
            for consumer in consumers
        ),
    )


def register(
    name: Annotated[str | None, Parameter(help="Name of the consumer. Default: the name in [consumer].")] = None,
    *,
    tags: Annotated[
        str | None, Parameter(help="Its tags: NAME=VALUE, separated by commas. Default: the tags in [consumer].")
    ] = None,
    of: Application = CONFIGURED,
    as_json: Json = False,
) -> None:
    """Register a fan-out consumer if it does not exist, and wait until it is ACTIVE."""

    async def work(settings: Settings, kinesis: KinesisClient) -> FanOutConsumer:
        own = settings.consumer
        registration = Registration(
            kinesis.control_plane,
            name or own.fan_out_consumer,
            tags=own.consumer_tags if tags is None else _checked_tags(tags),
        )
        return await registration.ensure()

    consumer = _with_kinesis(of, work)
    if as_json:
        write_json(_values(consumer))
    else:
        write_line(f"{consumer.name} is {consumer.status}: {consumer.arn}")


def deregister(
    name: Annotated[str, Parameter(help="Name of the consumer.")],
    *,
    of: Application = CONFIGURED,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Deregister a fan-out consumer. Its subscriptions end."""

    async def work(settings: Settings, kinesis: KinesisClient) -> list[FanOutConsumer]:
        described = await kinesis.control_plane.describe_stream()
        try:
            consumer = await kinesis.control_plane.describe_consumer(described.arn, name)
        except ResourceNotFoundError as error:
            raise UsageError(f"{described.name} has no fan-out consumer {name!r}: see `efo consumers list`") from error
        if not force:
            await _refuse_used([consumer], settings, of, yes=yes)
        return await _deregister(kinesis, [consumer], yes=yes)

    _write_result(_with_kinesis(of, work), as_json=as_json)


def janitor(
    match: Annotated[str, Parameter(help='Names to deregister, as a shell pattern like "worker-*".')],
    *,
    older_than: Annotated[float, Parameter(help="Minimum number of days since their registration.")] = 7.0,
    of: Application = CONFIGURED,
    yes: Yes = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Deregister stale fan-out consumers, but never efo's own."""

    async def work(settings: Settings, kinesis: KinesisClient) -> list[FanOutConsumer]:
        consumers = stale(
            await _all(kinesis),
            match=match,
            older_than=older_than,
            now=kinesis.clock(),
            own=settings.consumer.fan_out_consumer,
        )
        if not force:
            await _refuse_used(consumers, settings, of, yes=yes)
        return await _deregister(kinesis, consumers, yes=yes)

    _write_result(_with_kinesis(of, work), as_json=as_json)


def _tags_of(text: str) -> dict[str, str]:
    """Return the values of tags by their names. Raises ValueError if `text` is not NAME=VALUE,..."""
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    for pair in pairs:
        if not re.fullmatch(r"[^=]+=.*", pair):
            raise ValueError(f"{pair!r} is not a tag: expected NAME=VALUE, separated by commas")
    return {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs)}


def _checked_tags(text: str) -> dict[str, str]:
    try:
        tags = _tags_of(text)
        check_tags("--tags", tags)
    except (ConfigurationError, ValueError) as error:
        raise UsageError(str(error)) from None
    return tags


async def _all(kinesis: KinesisClient) -> list[FanOutConsumer]:
    stream = await kinesis.control_plane.describe_stream()
    return sorted(await kinesis.control_plane.list_consumers(stream.arn), key=lambda consumer: consumer.name)


async def _refuse_used(consumers: list[FanOutConsumer], settings: Settings, of: Application, *, yes: bool) -> None:
    """Refuse to deregister consumers of living workers, and with --yes also those of which no lease tells anything.

    Kinesis does not say whether a consumer is in use. Its application's leases do, if this command finds their store.
    """
    unknown = []
    for consumer in consumers:
        own = settings.consumer
        # Unless [consumer] consumer_name says otherwise, a consumer has the name of its application.
        application = own.application if consumer.name == own.fan_out_consumer else consumer.name
        update = {"consumer": own.model_copy(update={"application": application})}
        settings_of_it = settings.model_copy(update=update)
        leases: Sequence[Lease] = ()
        with suppress(NoLeaseStoreError):
            async with open_existing_leases(settings_of_it, of.leases) as store:
                leases = await store.list()
                await refuse_living_holders(leases, settings_of_it, store)
        if not leases:
            unknown.append(f"{name_of_store(settings_of_it, of.leases)} has no leases of the application {application}")
    if not unknown:
        return
    why = f"nothing shows whether workers use them: {'; '.join(unknown[:5])}"
    if yes:
        raise UsageError(f"{why}: name the store of their leases (--config, --leases), or use --force")
    write_note(why)


async def _deregister(kinesis: KinesisClient, consumers: list[FanOutConsumer], *, yes: bool) -> list[FanOutConsumer]:
    if not consumers:
        return []
    await confirm(f"deregister {', '.join(consumer.name for consumer in consumers)}", yes=yes)
    for consumer in consumers:
        await kinesis.control_plane.deregister_consumer(consumer.arn)
    return consumers


def _with_kinesis(of: Application, work: Callable[[Settings, KinesisClient], Awaitable[T]]) -> T:
    settings = settings_of(of)

    async def run() -> T:
        async with open_stream(settings.kinesis) as kinesis:
            return await work(settings, kinesis)

    return trio.run(run)


def _values(consumer: FanOutConsumer) -> dict[str, Any]:
    age = time.time() - consumer.created_at
    return {
        "name": consumer.name,
        "arn": consumer.arn,
        "status": consumer.status,
        "created_at": consumer.created_at,
        "age_seconds": round(age),
    }


def _write_result(consumers: list[FanOutConsumer], *, as_json: bool) -> None:
    names = [consumer.name for consumer in consumers]
    if as_json:
        write_json({"deregistered": names})
    else:
        write_line(f"{len(names)} fan-out consumers deregistered" + (f": {' '.join(names)}" if names else ""))
