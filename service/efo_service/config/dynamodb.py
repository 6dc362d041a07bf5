"""The settings of the DynamoDB lease store: the table [leases.dynamodb]. What they mean: docs/leases-dynamodb.md."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, FilePath

from efo_service.config.section import Endpoint, Section


def _check_tags(value: str) -> str:
    tags_of(value)
    return value


def tags_of(text: str) -> dict[str, str]:
    """Return tags by name. Raises ValueError."""
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    for pair in pairs:
        if not re.fullmatch(r"[^=]+=.*", pair):
            raise ValueError(f"{pair!r} is no tag: expected NAME=VALUE, several by commas")
    return {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs)}


class DynamoDbSettings(Section):
    """KCL's lease table, for store = "dynamodb". Credentials come from the AWS chain, never from here."""

    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{3,255}$")] | None = Field(
        None, description="The table. Default: the application's name, as KCL names it.", examples=["billing"]
    )
    region: str | None = Field(None, description="Default: the stream's.", examples=["eu-west-1"])
    endpoint_url: Endpoint | None = Field(
        None,
        description="Another endpoint than the region's own, for example a VPC endpoint.",
        examples=["http://127.0.0.1:8000"],
    )
    ca_file: FilePath | None = Field(
        None, description="Certificate authorities to trust instead of the system's (PEM).", examples=["ca.pem"]
    )
    profile: str | None = Field(
        None, description="A profile of the AWS configuration. Default: [kinesis] profile.", examples=["keeper"]
    )
    stream_id: Annotated[str, Field(pattern=r"^\d{12}:[A-Za-z0-9_.-]+:\d+$")] | None = Field(
        None,
        description="In a table of KCL's multi-stream applications, account:stream:epoch of this stream.",
        examples=["123456789012:orders:1700000000"],
    )
    consistent_reads: bool = Field(
        default=False, description="List leases strongly consistent, for twice the price. Else they may be moments old."
    )
    create_table: bool = Field(default=True, description="Make the table, billed on demand, if it is not there,")
    tags: Annotated[str, AfterValidator(_check_tags)] = Field(
        "", description="with these tags: NAME=VALUE, several by commas,", examples=["team=orders"]
    )
    deletion_protection: bool = Field(default=False, description="with protection from being deleted,")
    point_in_time_recovery: bool = Field(default=False, description="and with continuous backups.")
