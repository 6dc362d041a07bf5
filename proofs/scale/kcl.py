"""The same sums for KCL, from its documented settings, and DynamoDB's prices."""

from __future__ import annotations

from typing import Any, Final

from proofs.scale.table import ROW_BYTES, UNIT_BYTES

PER_WRITE: Final = 0.625e-6
PER_READ: Final = 0.125e-6
"""US dollars per unit, on demand, in us-east-1 (AWS: prices of DynamoDB, since November 2024)."""
MONTH: Final = 30 * 24 * 3600.0


def dollars_per_month(writes: float, reads: float) -> int:
    """Return what so many units per second cost in 30 days."""
    return round(MONTH * (writes * PER_WRITE + reads * PER_READ))


def of_kcl(shards: int, workers: int, failover_seconds: float, checkpoint_seconds: float = 5.0) -> dict[str, Any]:
    """Return KCL's lease traffic in units per second, and the time until the leases of a worker that crashed are taken.

    KCL renews each lease at a third of failoverTimeMillis less 25 ms, and writes checkpoints by themselves, whenever
    the application asks for them: here as often as efo saves progress by default. In 2.x each worker scans the table
    every two fail-over times and 50 ms. In 3.x the leader does, every two fail-over times, and each worker queries an
    index for its own leases every 9.975 s; that index is written with the table, when the owner of a lease changes.
    A lease expires after the fail-over time, and the next such scan takes it.
    """
    scan = shards * ROW_BYTES / UNIT_BYTES / 2
    writes = shards * (1 / (failover_seconds / 3 - 0.025) + 1 / checkpoint_seconds)
    reads_2 = workers * scan / (2 * failover_seconds + 0.05)
    reads_3 = scan / (2 * failover_seconds) + scan / 9.975
    return {
        "writes_per_s": round(writes, 1),
        "read_units_per_s_2x": round(reads_2, 1),
        "read_units_per_s_3x": round(reads_3, 1),
        "dollars_per_month_2x": dollars_per_month(writes, reads_2),
        "dollars_per_month_3x": dollars_per_month(writes, reads_3),
        "taken_after_s": [failover_seconds, 3 * failover_seconds],
    }
