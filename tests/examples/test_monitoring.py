"""The monitoring example: what its containers mount and run exists, and their files agree with each other.

A Collector and a Prometheus run with these files, where they are installed: on other ports, with more scrapes.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import httpx2
import pytest
import trio
import yaml

from efo_service.config.section import PREFIX
from efo_service.config.settings import Settings
from efo_service.telemetry.sdk import telemetry
from proofs.dashboards.programs import COLLECTOR as COLLECTOR_PROGRAM, collector
from proofs.dashboards.prometheus import Prometheus
from proofs.ports import free_ports
from tests.paths import ROOT

EXAMPLE = ROOT / "examples/monitoring"
SERVICES = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
COLLECTOR = yaml.safe_load((ROOT / "config/otel-collector/config.yaml").read_text())


def mounts(service):
    return dict(volume.removesuffix(":ro").split(":") for volume in SERVICES[service].get("volumes", []))


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_container_mounts_exists_and_is_not_written(name):
    for volume in SERVICES[name].get("volumes", []):
        assert (EXAMPLE / volume.partition(":")[0]).resolve().exists()
        assert volume.endswith(":ro")


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - {"kinesis"}))
def test_all_share_one_network_since_the_files_name_127_0_0_1(name):
    assert SERVICES[name]["network_mode"] == "service:kinesis"


def test_every_published_port_is_of_this_machine_alone_and_of_a_service():
    assert SERVICES["kinesis"]["ports"] == ["127.0.0.1:3000:3000", "127.0.0.1:9090:9090"]


def test_the_relay_sends_to_the_collector_which_prometheus_scrapes():
    environment = SERVICES["relay"]["environment"]
    receiver = COLLECTOR["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://{receiver.removeprefix('${env:EFO_OTLP_HTTP:-')[:-1]}"
    (job,) = yaml.safe_load((EXAMPLE / "prometheus.yml").read_text())["scrape_configs"]
    served = COLLECTOR["exporters"]["prometheus"]["endpoint"].removeprefix("${env:EFO_COLLECTOR_METRICS:-")[:-1]
    assert job["static_configs"] == [{"targets": [served]}]
    assert job["job_name"].startswith("efo")
    assert job["honor_labels"] is True
    scrape = yaml.safe_load((EXAMPLE / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert environment["OTEL_METRIC_EXPORT_INTERVAL"] == f"{scrape.removesuffix('s')}000"


def test_the_settings_of_the_relay_exist():
    names = [name for name in SERVICES["relay"]["environment"] if name.startswith(PREFIX)]
    assert names
    for name in names:
        section, key = name.removeprefix(PREFIX).lower().split("__")
        assert key in Settings.model_fields[section].annotation.model_fields


def test_grafana_finds_the_dashboards_where_the_provider_looks_and_the_address_of_prometheus():
    provider = yaml.safe_load((ROOT / "config/grafana/provisioning/dashboards/efo.yaml").read_text())["providers"][0]
    assert mounts("grafana")["../../config/grafana/dashboards"] == provider["options"]["path"]
    source = (ROOT / "config/grafana/provisioning/datasources/prometheus.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", source)) <= SERVICES["grafana"]["environment"].keys()


def test_the_image_of_the_fake_has_the_packages_that_it_needs():
    locked = (ROOT / "requirements/spark.txt").read_text()
    assert SERVICES["kinesis"]["image"] == "efo-spark"
    assert all(re.search(rf"^{package}==", locked, re.MULTILINE) for package in ("cbor2", "h11", "trustme"))


# --- with Prometheus and a Collector ---------------------------------------------------------------------------------

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed: run apt-get install prometheus",
)
needs_collector = pytest.mark.skipif(
    not COLLECTOR_PROGRAM.exists(), reason="the Collector is not built: make dashboards builds it"
)


@needs_prometheus
def test_prometheus_accepts_the_configuration_with_what_is_mounted_beside_it(tmp_path):
    for source, target in mounts("prometheus").items():
        shutil.copy(EXAMPLE / source, tmp_path / target.removeprefix("/etc/prometheus/"))
    command = ["promtool", "check", "config", tmp_path / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rules found" in done.stdout


async def first(ask):
    """Ask a program that starts until it has an answer."""
    while True:
        try:
            if found := await ask():
                return found
        except httpx2.TransportError:
            pass
        await trio.sleep(0.1)


@needs_prometheus
@needs_collector
async def test_what_the_relay_sends_is_scraped_from_the_collector_under_its_own_job(tmp_path, monkeypatch):
    metrics, http, grpc = free_ports(3)
    ports = {"127.0.0.1:4318": f"127.0.0.1:{http}", "127.0.0.1:8889": f"127.0.0.1:{metrics}", "15s": "1s"}

    def adapted(text):
        return re.sub("|".join(map(re.escape, ports)), lambda found: ports[found[0]], text)

    configuration = adapted((EXAMPLE / "prometheus.yml").read_text())
    rules = (ROOT / "config/prometheus/rules.yml").read_text()
    receiver = collector(tmp_path, metrics=metrics, http=http, grpc=grpc)
    prometheus = Prometheus("prometheus", tmp_path / "prometheus", configuration, rules)
    try:
        async with httpx2.AsyncClient() as client:
            await receiver.start()
            with trio.fail_after(60):
                await first(lambda: client.get(f"http://127.0.0.1:{metrics}/metrics"))
            await prometheus.start()
            for name, value in SERVICES["relay"]["environment"].items():
                if name.startswith("OTEL_"):
                    monkeypatch.setenv(name, adapted(value))
            with telemetry("worker-1"):
                pass  # what was measured is sent at the end
            with trio.fail_after(60):
                series = await first(lambda: prometheus.series("efo_build_info"))
        assert [(one["job"], one["instance"]) for one in series] == [("efo", "worker-1")]
        assert await prometheus.series('up{job="efo-otel-collector"} == 1')
    finally:
        await prometheus.end()
        await receiver.end()
