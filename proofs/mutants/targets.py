"""Which modules are mutated, and which tests judge each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Target:
    """A folder of modules. Paths are from the root of the checkout.

    `tests`: the folder that mirrors it; of its sub-folders nothing is run. `neighbours`: more test files, for modules
    by name. `own`: test files that only judge the module of the same name, since they are slow.
    """

    folder: str
    tests: str
    neighbours: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own: tuple[str, ...] = ()

    def modules(self, root: Path) -> dict[str, bytes]:
        """Return the text of the modules by path."""
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted((root / self.folder).glob("*.py"))}

    def judges(self, root: Path, module: str) -> tuple[list[str], list[str]]:
        """Return the test files for a module: those named as it and its neighbours, and the others of the folder."""
        stem = Path(module).stem
        files = [str(path.relative_to(root)) for path in sorted((root / self.tests).glob("test_*.py"))]
        named = [path for path in files if Path(path).stem.startswith(f"test_{stem}")]
        near = [*named, *(path for path in self.neighbours.get(stem, ()) if path not in named)]
        return near, [path for path in files if path not in {*near, *self.own}]


TARGETS: Final = (
    Target(
        "efo/protocol",
        "tests/efo/protocol",
        {
            "aggregation": ("tests/efo/consumer/test_deaggregator.py",),
            "per_key_order": ("tests/efo/consumer/test_shard_stream.py",),
            "frame_meter": ("tests/efo/kinesis/test_http2.py", "tests/efo/kinesis/test_hostile_peer.py"),
            "service_errors": ("tests/efo/kinesis/test_service_call.py",),
        },
    ),
    Target(
        "efo/protocol/assignment",
        "tests/efo/protocol",
        dict.fromkeys(
            ("assign", "balance", "placement", "view"),
            ("tests/efo/protocol/test_assignment.py", "tests/efo/protocol/test_strategies.py"),
        ),
    ),
    Target(
        "efo/consumer",
        "tests/efo/consumer",
        dict.fromkeys(
            ("shard_stream", "shard_task"),
            ("tests/efo/consumer/handlers/test_handler.py", "tests/efo/consumer/handlers/test_processor.py"),
        ),
        own=("tests/efo/consumer/test_processes.py",),
    ),
    Target(
        "efo/consumer/handlers",
        "tests/efo/consumer/handlers",
        {"failure_handler": ("tests/efo/consumer/handlers/test_handler.py", "tests/efo/consumer/test_isolation.py")},
    ),
    Target("efo/consumer/streams", "tests/efo/consumer/streams"),
    Target(
        "efo/leases",
        "tests/efo/leases",
        {
            "row_store": ("tests/efo/leases/stores/test_conformance.py",),
            "lease_row": ("tests/efo/leases/stores/test_conformance.py",),
            "store": ("tests/efo/leases/stores/test_conformance.py",),
            "transitions": ("tests/efo/leases/stores/test_conformance.py",),
            "writes": ("tests/efo/leases/stores/test_conformance.py",),
        },
    ),
    Target(
        "service/efo_service/log",
        "tests/efo_service/log",
        {},
    ),
    Target(
        "service/efo_service/log/columns",
        "tests/efo_service/log/columns",
        {"layout": ("tests/efo_service/log/columns/test_arrow.py",)},
    ),
)

LEFT_OUT: Final = (
    # It starts a hundred processes. That other tests must notice a mutant is the stricter proof.
    "tests/efo_service/log/test_partition_writer.py::test_a_commit_that_is_killed_at_any_step_is_atomic",
)
"""Tests that never judge."""


def target_of(targets: Iterable[Target], module: str) -> Target:
    """Return the target of a module. Raises KeyError."""
    for target in targets:
        if str(Path(module).parent) == target.folder:
            return target
    raise KeyError(module)
