"""All fuzz targets, by name."""

from __future__ import annotations

from typing import Final

from proofs.fuzz import aggregates, connection, deserializers, events, formats, frames, port
from proofs.native import fuzzing

TARGETS: Final = {
    target.name: target
    for target in (
        *(module.TARGET for module in (frames, events, aggregates, connection, port)),
        *deserializers.TARGETS,
        formats.TARGET,
        *fuzzing.TARGETS,
    )
}
