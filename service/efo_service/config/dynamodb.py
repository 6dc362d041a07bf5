"""The settings of the DynamoDB lease store, [leases.dynamodb]. See docs/leases.md."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, PositiveInt, model_validator

from efo_service.config.section import ProxyUrl, Reached, Text


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
