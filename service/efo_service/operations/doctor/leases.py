"""Checks of the lease store: reachable, readable, of a version that this efo knows, and writable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from efo.leases.store import Inspectable, Inspection
from efo_service.operations.doctor.machine import directory_problem, in_thread
from efo_service.operations.doctor.outcomes import Outcome, failed, not_tested, passed
from efo_service.operations.doctor.running import Check

_REMEDIES: Final[Mapping[str, str]] = {
    "sqlite": "give this user rights to read and write the file of [leases] path",
    "dynamodb": "allow these actions of dynamodb: on the table, in the policies of these credentials",
    "postgres": "as the owner, GRANT the role these permissions: see docs/leases.md",
    "redis": "grant the user the permissions in docs/leases.md",
    "log": "allow these credentials to write below [relay] directory: see docs/log.md",
}
"""What to do if a write is not permitted, by [leases] store."""


def lease_checks(make: Callable[[], Inspectable], store: str, path: Path | None, way: str = "") -> list[Check]:
    """Return the checks of the lease store.

    `make`: returns the store, which is not open. `store`: its kind. `path`: its file, if it is one. `way`: by which
    proxy it is called, to append to what was found.
    """
    found: list[Inspection] = []

    async def read() -> Outcome:
        found.append(await make().inspect())
        outcome = judge_reading(found[0], store)
        return replace(outcome, detail=outcome.detail + way)

    async def write() -> Outcome:
        return judge_writing(found[0], store)

    server = "check the server of [leases], its address and the network"
    if store == "log":
        server = "check [relay] directory, its store_options and the network"
    checks = [
        Check("lease store", read, server if path is None else f"check the file {path} and its disk"),
        Check("lease store writes", write, server, ("lease store",)),
    ]
    if path is not None:
        look = in_thread(lambda: directory_problem(path.parent) or passed(f"files can be created in {path.parent}"))
        checks.insert(0, Check("lease directory", look, f"check the file system of {path.parent}"))
    return checks


# --- what it means: pure ---------------------------------------------------------------------------------------


def judge_reading(inspection: Inspection, store: str) -> Outcome:
    """Return what was found in a store that can be read."""
    if not inspection.exists:
        return passed(f"{store} can be reached and has no leases yet: `efo run` creates what it needs")
    version = "" if inspection.version is None else f", format version {inspection.version}"
    leases = "" if inspection.leases is None else f", {inspection.leases} leases of this application and stream"
    return passed(f"{store} can be read{version}{leases}")


def judge_writing(inspection: Inspection, store: str) -> Outcome:
    """Return whether a store permits the writes of a worker."""
    if inspection.denied is None:
        return not_tested(f"only a write shows whether {store} permits it")
    if inspection.denied:
        return failed(f"{store} does not permit: {', '.join(inspection.denied)}", _REMEDIES[store])
    return passed("permitted")
