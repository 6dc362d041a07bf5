"""The monitoring example: what its containers mount and run exists, and their files agree with each other."""

from __future__ import annotations

import re

import pytest
import yaml

from efo_service.config.section import PREFIX
from efo_service.config.settings import Settings
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
