"""Stream names and ARNs."""

from __future__ import annotations

import re
from typing import Final

from efo.checks import check_type
from efo.errors import ConfigurationError

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ARN: Final = re.compile(rf"arn:aws[a-z-]*:kinesis:(?P<region>[a-z0-9-]+):\d{{12}}:stream/(?P<name>{_NAME.pattern})")


def parse_stream(stream: str) -> tuple[str, str | None]:
    """Return the name of a stream and, if an ARN was given, its region. Raises ConfigurationError."""
    check_type("stream", stream, str, "the name or ARN of a stream")
    if match := _ARN.fullmatch(stream):
        return match["name"], match["region"]
    if stream.startswith("arn:"):
        if "/consumer/" in stream:
            raise ConfigurationError(f"{stream!r} is the ARN of a consumer: use the ARN or the name of its stream")
        raise ConfigurationError(
            f"{stream!r} is not the ARN of a stream: expected arn:aws:kinesis:REGION:ACCOUNT:stream/NAME"
        )
    if not _NAME.fullmatch(stream):
        raise ConfigurationError(
            f"{stream!r} is not the name of a stream: expected 1 to 128 letters, digits, '_', '.' or '-'"
        )
    return stream, None


_CONSUMER: Final = re.compile(rf"(?P<stream>{_ARN.pattern})/consumer/(?P<consumer>[A-Za-z0-9_.-]{{1,128}}):\d+")


def parse_consumer(arn: str) -> tuple[str, str]:
    """Return the ARN of the stream and the name of a fan-out consumer, from its ARN. Raises ConfigurationError."""
    check_type("consumer_arn", arn, str, "the ARN of a fan-out consumer")
    if (match := _CONSUMER.fullmatch(arn)) is None:
        raise ConfigurationError(
            f"{arn!r} is not the ARN of a fan-out consumer: expected"
            " arn:aws:kinesis:REGION:ACCOUNT:stream/NAME/consumer/NAME:TIMESTAMP"
        )
    return match["stream"], match["consumer"]
