"""Lease stores, and the coordinator that takes and renews leases."""

from __future__ import annotations

from efo.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
