"""The page about the processes: CPU time, memory, descriptors, versions."""

from __future__ import annotations

from typing import Final

from tools.grafana.model import Dashboard, Panel, Query, Row, of_instance, rate

_PROCESS: Final = "{{instance}} {{worker}}"

PROCESS: Final = Dashboard(
    "efo-process",
    "efo / Processes",
    "CPU time, memory, file descriptors and age of each process. From /metrics only, not by OTLP.",
    (
        Row(
            "Processes",
            (
                Panel(
                    title="CPU",
                    about="Cores that the process uses. At 1, a worker is at its limit: add workers.",
                    queries=(Query(rate(of_instance("process_cpu_seconds_total")), _PROCESS),),
                    alerts=("EfoBackpressure", "EfoLagHigh"),
                    steps=(0.7, 0.95),
                ),
                Panel(
                    title="Memory",
                    about="Resident set size.",
                    unit="bytes",
                    queries=(Query(of_instance("process_resident_memory_bytes"), _PROCESS),),
                    alerts=("EfoWorkerRestarts",),
                ),
                Panel(
                    title="File descriptors",
                    about="Share of the limit that is open.",
                    unit="percentunit",
                    queries=(Query(f"{of_instance('process_open_fds')} / {of_instance('process_max_fds')}", _PROCESS),),
                    steps=(0.7, 0.9),
                ),
                Panel(
                    title="Age",
                    about="Time since the process was started. A fall is a restart.",
                    unit="s",
                    queries=(Query(f"time() - {of_instance('process_start_time_seconds')}", _PROCESS),),
                    alerts=("EfoWorkerRestarts",),
                ),
                Panel(
                    title="Versions",
                    about="The version and the commit of efo that each process runs.",
                    kind="table",
                    queries=(Query(of_instance("efo_build_info"), "{{version}} {{commit}}"),),
                ),
                Panel(
                    title="Problems of the process",
                    about="A refused reload, a certificate not renewed, or a setting that waits for a restart.",
                    queries=(Query(of_instance("efo_process_problem"), f"{{{{efo_problem}}}}: {_PROCESS}"),),
                    alerts=("EfoProcessProblem",),
                ),
                Panel(
                    title="Series",
                    about="Series of shards that the process tells. Those of ended shards go after five minutes.",
                    queries=(Query(of_instance("efo_telemetry_series"), _PROCESS),),
                ),
                Panel(
                    title="Duration of scrapes",
                    about="Time that Prometheus needs to read /metrics.",
                    unit="s",
                    queries=(Query(of_instance("scrape_duration_seconds"), "{{instance}}"),),
                    alerts=("EfoTargetDown",),
                ),
            ),
        ),
    ),
)
