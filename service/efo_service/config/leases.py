"""Settings of the lease store, and of how workers share the shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, SecretStr, model_validator

from efo_service.config.dynamodb import DynamoDbSettings
from efo_service.config.section import Count, LocalPath, Seconds, Section

_SCHEMES: Final = {"postgres": ("postgresql", "postgres"), "redis": ("redis", "rediss", "unix")}
"""The URL schemes of lease stores."""
_CALL_TIMEOUT: Final = 5.0


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
    start_seconds: Seconds = Field(
        30.0, description="How long to wait at the start for a lease store that is unavailable."
    )
    failover_seconds: Seconds = Field(
        10.0, description="Fail-over time: a lease that is not renewed for this long expires, and others take it (R10)."
    )
    scan_interval_seconds: Seconds | None = Field(
        None,
        description="Time between two lease scans. Default: a twentieth of failover_seconds, longer with many workers.",
        examples=[5.0],
    )
    graceful_handoff: bool = Field(
        True,
        description="Whether to request a lease from its owner, so that no record is read twice. If false, the lease"
        " is stolen.",
    )
    handoff_seconds: Seconds = Field(
        30.0, description="A requested lease that is not released within this time and failover_seconds is stolen."
    )
    max_leases: Count | None = Field(
        None, description="Maximum number of leases that this worker owns. Default: no limit.", examples=[100]
    )
    balance: Literal["count", "throughput"] = Field(
        "count", description="What workers share evenly: the number of shards (count) or their traffic (throughput)."
    )
    max_leases_per_scan: Count | None = Field(
        None,
        description="Maximum number of leases that this worker takes in one lease scan. Default: no limit.",
        examples=[10],
    )
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
    cleanup: bool = Field(
        True, description="Whether to delete the lease of a finished shard ten minutes after nothing depends on it."
    )
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
