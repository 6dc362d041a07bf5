"""OpenTelemetry: the instruments, and the observer that feeds them from diagnostic events."""

from __future__ import annotations

from efo.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
