"""The settings of KCL's metrics in CloudWatch, [cloudwatch]. See docs/monitoring.md."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from efo_service.config.section import ProxyUrl, Reached, Text


def _check_namespace(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_./#-][A-Za-z0-9_./#: -]{0,254}", value) or value.startswith("AWS/"):
        raise ValueError(
            f"{value!r} is not a namespace: expected letters, digits and _.-/#: , and not AWS/ at the start"
        )
    return value


class CloudWatchSettings(Reached):
    """KCL's metrics in CloudWatch, by KCL's names. Credentials come from the AWS chain, never from this file."""

    level: Literal["none", "summary", "detailed"] = Field(
        "none", description="Which metrics are published: none, summary or detailed (KCL: metricsLevel)."
    )
    namespace: Annotated[str, AfterValidator(_check_namespace)] | None = Field(
        None,
        description="Namespace of the metrics. Default: the application's name, as for KCL.",
        examples=["billing"],
    )
    worker_dimension: bool = Field(
        default=False,
        description="Whether metrics of a worker have the dimension WorkerIdentifier. KCL's default is no.",
    )
    region: Text | None = Field(
        None, description="AWS region of CloudWatch. Default: the stream's region.", examples=["eu-west-1"]
    )
    profile: Text | None = Field(
        None,
        description="Profile of the AWS configuration for CloudWatch. Default: [kinesis] profile.",
        examples=["metrics"],
    )
    proxy_url: ProxyUrl | None = Field(
        None,
        description="HTTP proxy for CloudWatch; empty: none. Default: [kinesis] proxy_url.",
        examples=["http://proxy.example:3128"],
    )
