"""All fuzz targets, by name."""

from __future__ import annotations

from typing import Final

from proofs.fuzz import aggregates, connection, events, frames, port

TARGETS: Final = {module.TARGET.name: module.TARGET for module in (frames, events, aggregates, connection, port)}
