"""The settings of the DynamoDB lease store, [leases.dynamodb]. See docs/leases.md."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from efo_service.config.section import Endpoint, ExistingFile, ProxyUrl, Section, Text


def _check_tags(value: str) -> str:
    tags_of(value)
    return value


def tags_of(text: str) -> dict[str, str]:
    """Return the values of tags by their names. Raises ValueError if `text` is not NAME=VALUE,..."""
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    for pair in pairs:
        if not re.fullmatch(r"[^=]+=.*", pair):
            raise ValueError(f"{pair!r} is not a tag: expected NAME=VALUE, separated by commas")
    return {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs)}


class DynamoDbSettings(Section):
    """KCL's lease table, for store = "dynamodb". Credentials come from the AWS chain, never from this file."""

    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{3,255}$")] | None = Field(
        None, description="Name of the lease table. Default: the application's name, as for KCL.", examples=["billing"]
    )
    region: Text | None = Field(
        None, description="AWS region of the table. Default: the stream's region.", examples=["eu-west-1"]
    )
    endpoint_url: Endpoint | None = Field(
        None,
        description="Endpoint to use instead of the region's own, for example a VPC endpoint.",
        examples=["http://127.0.0.1:8000"],
    )
    ca_file: ExistingFile | None = Field(
        None,
        description="PEM file of certificate authorities to trust instead of the system's.",
        examples=["ca.pem"],
    )
    profile: Text | None = Field(
        None, description="Profile of the AWS configuration. Default: [kinesis] profile.", examples=["keeper"]
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
    tags: Annotated[str, AfterValidator(_check_tags)] = Field(
        "",
        description="Tags of a table that efo creates: NAME=VALUE, separated by commas.",
        examples=["team=orders"],
    )
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
