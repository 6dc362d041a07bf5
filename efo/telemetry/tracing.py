"""Whether a consumer makes spans. This module does not import OpenTelemetry, which takes time."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from efo.telemetry.spans import OtelTracing, Spans

NO_SPAN: Final[AbstractContextManager[object]] = nullcontext()
"""What is entered instead of a span without a tracer provider."""


def open_spans(
    tracing: OtelTracing | None, *, stream: str, application: str, consumer: str | None, server_address: str | None
) -> Spans | None:
    """Return the spans of a consumer; None if there are to be none.

    `tracing`: None for the global tracer provider, if the application has set one. The others are the arguments of
    OtelObserver.
    """
    if tracing is None and "opentelemetry.trace" not in sys.modules:
        return None  # then nobody has set a provider
    from efo.telemetry.spans import OtelTracing, spans_of  # noqa: PLC0415 - only if it is used

    return spans_of(
        tracing or OtelTracing(),
        stream=stream,
        application=application,
        consumer=consumer,
        server_address=server_address,
    )
