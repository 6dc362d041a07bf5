"""The names that AWS gives to streams."""

from __future__ import annotations

import re
from typing import Final

from efo.errors import ConfigurationError

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ARN: Final = re.compile(rf"arn:aws[a-z-]*:kinesis:(?P<region>[a-z0-9-]+):\d{{12}}:stream/(?P<name>{_NAME.pattern})")


def parse_stream(stream: str) -> tuple[str, str | None]:
    """Return a stream's name and, where an ARN was given, its region. Raises ConfigurationError."""
    if match := _ARN.fullmatch(stream):
        return match["name"], match["region"]
    if stream.startswith("arn:"):
        if "/consumer/" in stream:
            raise ConfigurationError(f"{stream!r} is a consumer's ARN: write its stream's ARN or name")
        raise ConfigurationError(f"{stream!r} is not a stream's ARN: arn:aws:kinesis:REGION:ACCOUNT:stream/NAME")
    if not _NAME.fullmatch(stream):
        raise ConfigurationError(f"{stream!r} is not a stream's name: 1 to 128 letters, digits, '_', '.' or '-'")
    return stream, None
