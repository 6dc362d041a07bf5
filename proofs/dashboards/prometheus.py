"""A real Prometheus: its configuration, its process, and what the proof asks it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import trio

from proofs.dashboards.programs import Program
from proofs.ports import free_ports

FASTER: Final = 10
"""All windows and waiting times of the rules are divided by this: five minutes are half a minute. No threshold is."""
RATE_INTERVAL: Final = "20s"
"""What Grafana would take for $__rate_interval at this scrape interval, rounded up."""
_SCRAPE_SECONDS: Final = 2
_START_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Target:
    """A job with one target. `seconds`: its scrape interval. `honor_labels`: keeps the labels that it has."""

    job: str
    port: int
    seconds: int = _SCRAPE_SECONDS
    honor_labels: bool = False


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fires. `job`: empty for an alert without this label."""

    alert: str
    job: str


class Prometheus:
    """A Prometheus. `configuration`: its file, which names `rules.yml`. `rules`: that file."""

    def __init__(self, name: str, directory: Path, configuration: str, rules: str) -> None:
        (port,) = free_ports(1)
        directory.mkdir(parents=True)
        (directory / "rules.yml").write_text(rules)
        (directory / "prometheus.yml").write_text(configuration)
        self.program = Program(
            name,
            [
                "prometheus",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            directory,
        )
        self._client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30)

    async def start(self) -> None:
        """Start it, and wait until it answers. Raises ProgramError."""
        await self.program.start()
        with trio.fail_after(_START_SECONDS):
            while True:
                self.program.check()
                try:
                    if (await self._client.get("/-/ready")).is_success:
                        return
                except httpx2.HTTPError:
                    pass
                await trio.sleep(0.1)

    async def end(self) -> None:
        """End it."""
        await self._client.aclose()
        await self.program.end()

    async def firing(self) -> set[Firing]:
        """Return the alerts that fire now."""
        alerts = (await self._get("/api/v1/alerts"))["alerts"]
        return {
            Firing(alert["labels"]["alertname"], alert["labels"].get("job", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }

    async def failed_rules(self) -> list[str]:
        """Return the rules whose last evaluation failed, each with Prometheus' reason."""
        groups = (await self._get("/api/v1/rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return [f"{rule['name']}: {rule['lastError'][:300]}" for rule in rules if rule["health"] == "err"]

    async def series(self, expr: str) -> list[dict[str, str]]:
        """Return the labels of the series of a query, as of now."""
        return [found["metric"] for found in (await self._get("/api/v1/query", query=expr))["result"]]

    async def has_data(self, expr: str, start: float, end: float) -> bool:
        """Return whether a query has a number at any time between two times, in seconds since the epoch."""
        found = await self._get("/api/v1/query_range", query=expr, start=start, end=end, step=2)
        values = (float(value) for series in found["result"] for _, value in series["values"])
        return any(not math.isnan(value) for value in values)

    async def labels(self, job: str) -> dict[str, set[str]]:
        """Return the names of the labels of each metric of a job."""
        labels: dict[str, set[str]] = {}
        for series in await self._get("/api/v1/series", **{"match[]": f'{{job="{job}"}}'}):
            labels.setdefault(series.pop("__name__"), set()).update(series)
        return labels

    async def _get(self, path: str, **parameters: str | float) -> Any:
        response = await self._client.get(path, params=parameters)
        content: Mapping[str, Any] = response.json()
        if content["status"] != "success":
            raise ValueError(f"Prometheus refused {parameters}: {content.get('error')}")
        return content["data"]


def configuration_of(targets: Sequence[Target]) -> str:
    """Return the configuration of a Prometheus that scrapes these targets. JSON is YAML."""
    configuration = {
        "global": {"scrape_interval": f"{_SCRAPE_SECONDS}s", "evaluation_interval": f"{_SCRAPE_SECONDS}s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": target.job,
                "scrape_interval": f"{target.seconds}s",
                "scrape_timeout": f"{target.seconds}s",
                "honor_labels": target.honor_labels,
                "static_configs": [{"targets": [f"127.0.0.1:{target.port}"]}],
            }
            for target in targets
        ],
    }
    return json.dumps(configuration)
