"""Settings of the lease store, in DynamoDB too, and of how workers share the shards."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, PositiveInt, SecretStr, model_validator

from efo.settings import ConsumerSettings
from efo_service.config.section import LocalPath, ProxyUrl, Reached, Section, Text, defined


class DynamoDbSettings(Reached):
    """KCL's lease table, for store = "dynamodb". Credentials come from the AWS chain, never from this file."""

    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{3,255}$")] | None = Field(
        None, description="Name of the lease table. Default: the application's name, as for KCL.", examples=["billing"]
    )
    region: Text | None = Field(
        None, description="AWS region of the table. Default: the stream's region.", examples=["eu-west-1"]
    )
    profile: Text | None = Field(
        None,
        description="Profile of the AWS configuration for DynamoDB. Default: [kinesis] profile.",
        examples=["keeper"],
    )
    proxy_url: ProxyUrl | None = Field(
        None,
        description="HTTP proxy for DynamoDB; empty: none. Default: [kinesis] proxy_url.",
        examples=["http://proxy.example:3128"],
    )
    stream_id: Annotated[str, Field(pattern=r"^\d{12}:[A-Za-z0-9_.-]+:\d+$")] | None = Field(
        None,
        description="Id of this stream, account:stream:epoch, in the lease table of a multi-stream KCL application.",
        examples=["123456789012:orders:1700000000"],
    )
    consistent_reads: bool = Field(
        default=False,
        description="Whether lease scans are strongly consistent, for twice the price. If false, rows may be stale.",
    )
    worker_metrics_table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{3,255}$")] | None = Field(
        None,
        description="Where workers of KCL 3 report their load. Default: the lease table's name and -WorkerMetricStats.",
        examples=["billing-WorkerMetricStats"],
    )
    create_table: bool = Field(
        default=True,
        description="Whether to create a missing table. It is billed on demand, unless its capacity is set.",
    )
    read_capacity: PositiveInt | None = Field(
        None, description="Read units per second of a table that efo creates with provisioned capacity.", examples=[10]
    )
    write_capacity: PositiveInt | None = Field(
        None, description="Write units per second of such a table. Set both, or none of them.", examples=[10]
    )
    tags: dict[str, str] = Field({}, description="Tags of a table that efo creates.")
    deletion_protection: bool = Field(
        default=False, description="Whether a table that efo creates is protected from deletion."
    )
    point_in_time_recovery: bool = Field(
        default=False, description="Whether a table that efo creates has continuous backups."
    )

    @model_validator(mode="after")
    def _check_capacity(self) -> Self:
        if (self.read_capacity is None) != (self.write_capacity is None):
            raise ValueError("read_capacity and write_capacity: set both, or none of them for on-demand billing")
        return self


_SCHEMES: Final = {"postgres": ("postgresql", "postgres"), "redis": ("redis", "rediss", "unix")}
"""The URL schemes of lease stores."""
_CALL_TIMEOUT: Final = 5.0


_of_library = partial(defined, ConsumerSettings)


class LeaseSettings(Section):
    """The lease store, and how workers share the shards."""

    store: Literal["sqlite", "dynamodb", "postgres", "redis", "log"] = Field(
        "sqlite",
        description="Lease store: sqlite (a file, for one machine), dynamodb (KCL's table), postgres, redis, or log"
        " (beside the log of [relay] directory, on an object store).",
    )
    path: LocalPath = Field(
        Path("var/leases.sqlite"), validate_default=True, description="File of the sqlite lease store."
    )
    url: SecretStr | None = Field(
        None,
        description="URL of the postgres or redis server: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or"
        " redis://...",
    )
    failover_seconds: float = _of_library("failover_seconds")
    lease_scan_seconds: float | None = _of_library("lease_scan_seconds")
    graceful_handoff: bool = _of_library("graceful_handoff")
    handoff_seconds: float = _of_library("handoff_seconds")
    max_leases: int | None = _of_library("max_leases")
    max_leases_per_scan: int | None = _of_library("max_leases_per_scan")
    balance: Literal["count", "throughput"] = _of_library("balance")
    worker_weights: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        {},
        description="Weights of workers, by their ids or the beginnings of these; others weigh 1. Shares are in"
        " proportion. The same for all workers.",
    )
    zones: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        description="Zones of workers, with which their ids begin. Each zone reads a part of the hash keys, while it"
        " has workers. The same for all workers.",
    )
    lease_cleanup: bool = _of_library("lease_cleanup")
    worker_id: str | None = Field(
        None,
        min_length=1,
        description="Name of this worker, unique within the application. Default: one that is unique on this host, and"
        " the same after a restart.",
        examples=["worker-1"],
    )
    dynamodb: DynamoDbSettings = DynamoDbSettings()

    @property
    def call_timeout(self) -> float:
        """The time-out of a call to a server, or to an object store, in seconds.

        It is shorter if the fail-over time is short: after a call that hangs, there must be time for other renewals,
        see `efo.leases.held_lease.RENEWALS`.
        """
        return min(_CALL_TIMEOUT, self.failover_seconds / 3)

    @model_validator(mode="after")
    def _is_in_a_zone(self) -> LeaseSettings:
        if self.zones and not (self.worker_id or "").startswith(self.zones):
            raise ValueError(
                f"worker_id {self.worker_id!r} begins with none of the zones {', '.join(self.zones)}: set worker_id,"
                f" such as {self.zones[0]}-worker-1"
            )
        return self

    @model_validator(mode="after")
    def _has_url(self) -> LeaseSettings:
        if (schemes := _SCHEMES.get(self.store)) is None:
            return self
        url = self.url.get_secret_value() if self.url else ""
        if not url.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            raise ValueError(
                f'store = "{self.store}" needs the URL of a server: set EFO_LEASES__URL={schemes[0]}://... in the '
                "environment"
            )
        return self
