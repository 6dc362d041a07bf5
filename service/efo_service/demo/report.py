"""The output of the demo: progress bars while it runs, and a table at its end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from efo_service.demo.demo import DemoProgress, DemoResult


class ProgressBars:
    """Bars on stderr for the records produced, relayed and landed. Hidden unless `visible`."""

    def __init__(self, total: int, *, spark: bool, visible: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            disable=not visible,
        )
        names = ("produced", "relayed", *(["landed"] if spark else []))
        self._bars = {name: self._progress.add_task(name, total=total, note="") for name in names}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, progress: DemoProgress) -> None:
        """Update the bars."""
        note = f"{progress.phase}; {progress.live} subscriptions, {progress.splits} splits, {progress.merges} merges"
        if progress.crashes:
            note += f", {progress.crashes} crash"
        for name, bar in self._bars.items():
            text = note if name == "produced" else ""
            self._progress.update(bar, completed=getattr(progress, name), note=text)


def table(result: DemoResult) -> Table:
    """Return the comparison of what was sent with what each place holds, as a table."""
    summary = result.summary
    latency = summary["latency_ms"]
    report = Table(
        title=f"{summary['produced']:,} records in {summary['seconds']} s: {'passed' if result.passed else 'FAILED'}",
        caption=(
            f"{summary['splits']} split, {summary['merges']} merge, {summary['crashes']} crashes, "
            f"{summary['subscriptions']} subscriptions; latency from arrival to log: "
            f"p50 {latency['p50']} ms, p99 {latency['p99']} ms"
        ),
    )
    report.add_column("place")
    for name in ("found", "lost", "duplicated", "unexpected", "out of order"):
        report.add_column(name, justify="right")
    for place, found in (("relay log", result.log), ("Parquet", result.parquet)):
        if found is None:
            report.add_row(place, *["not run"] * 5)
        else:
            numbers = (found.found, found.lost, found.duplicated, found.unexpected, found.order_violations)
            report.add_row(place, *(f"{number:,}" for number in numbers))
    return report
