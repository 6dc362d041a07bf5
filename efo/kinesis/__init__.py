"""The connection to Kinesis: the control plane, HTTP/2, and the subscriptions of single shards."""

from __future__ import annotations

from efo.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
