"""The dashboards of Grafana: their files, ids, metrics and links; with promtool, the syntax of every query."""

from __future__ import annotations

import json
import re
from itertools import chain

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.paths import ROOT
from tests.tools.test_prometheus_rules import labels_in, metrics_in, promtool, scrape  # noqa: F401 - fixtures
from tools.grafana.model import VARIABLES, Query, fill
from tools.grafana_dashboards import DASHBOARDS, DIRECTORY, render
from tools.prometheus_rules import ALERTS, RECORDINGS

OF_PROMETHEUS = {"up", "scrape_duration_seconds", "ALERTS"}
LABELS_OF_PROMETHEUS = {"job", "instance", "le", "alertname", "alertstate"}
PANELS = [panel for dashboard in DASHBOARDS for panel in dashboard.panels]
QUERIES = [query for panel in PANELS for query in panel.queries]


def filled(query: Query) -> str:
    return fill(query.expr, rate_interval="1m")


def test_the_files_are_what_the_script_writes():
    written = {path: path.read_text() for path in DIRECTORY.glob("*")}
    assert written == render(), "run: python tools/grafana_dashboards.py --write"


def test_a_dashboard_has_a_stable_id_and_its_panels_have_ids_and_places_of_their_own():
    assert [dashboard.uid for dashboard in DASHBOARDS] == [
        "efo-overview", "efo-shards", "efo-leases", "efo-sinks", "efo-process",
    ]  # fmt: skip
    for path in DIRECTORY.glob("*.json"):
        content = json.loads(path.read_text())
        assert content["uid"] == path.stem
        panels = content["panels"]
        assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
        cells = [
            (x, y)
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells)), f"panels of {path.stem} overlap"
        assert all(x < 24 for x, _ in cells)


def test_every_query_of_a_panel_is_in_its_file_with_the_data_source_of_the_variable():
    for dashboard in DASHBOARDS:
        panels = json.loads((DIRECTORY / f"{dashboard.uid}.json").read_text())["panels"]
        drawn = [panel for panel in panels if panel["type"] != "row"]
        assert [panel["title"] for panel in drawn] == [panel.title for panel in dashboard.panels]
        assert {panel["datasource"]["uid"] for panel in drawn} == {"${datasource}"}
        exprs = [[target["expr"] for target in panel["targets"]] for panel in drawn]
        assert exprs == [[query.expr for query in panel.queries] for panel in dashboard.panels]


def test_every_metric_and_label_of_a_query_is_one_that_efo_serves(scrape):  # noqa: F811 - the fixture
    samples = [sample for family in text_string_to_metric_families(scrape) for sample in family.samples]
    names = {sample.name for sample in samples} | {recording.name for recording in RECORDINGS} | OF_PROMETHEUS
    labels = set(chain.from_iterable(sample.labels for sample in samples)) | LABELS_OF_PROMETHEUS
    for query in QUERIES:
        expr = filled(query)
        assert metrics_in(expr), expr
        assert metrics_in(expr) <= names, expr
        assert labels_in(expr) | set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= labels, expr


def test_a_query_uses_only_variables_that_the_dashboards_have():
    for query in QUERIES:
        assert set(re.findall(r"\$(\w+)", query.expr)) <= {*VARIABLES, "__rate_interval"}, query


def test_every_instrument_and_recording_is_in_a_panel(scrape):  # noqa: F811 - the fixture
    shown = set(chain.from_iterable(metrics_in(filled(query)) for query in QUERIES))
    recorded = {recording.name: recording.expr for recording in RECORDINGS}
    behind = set(chain.from_iterable(metrics_in(recorded[name]) for name in shown & set(recorded)))
    families = {re.sub("_(bucket|count)$", "", name) for name in shown | behind}
    served = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(scrape)
        if family.name.startswith(("efo_", "messaging_"))
    }
    assert served - families - {"efo_worker_restarts_created"} == set()
    assert set(recorded) - shown == set()


def test_every_alert_has_a_panel_with_a_link_to_its_page():
    explained = set(chain.from_iterable(panel.alerts for panel in PANELS))
    assert explained == {alert.name for alert in ALERTS}
    text = (DIRECTORY / "efo-overview.json").read_text()
    assert '"url": "${runbook}#efolaghigh"' in text


def test_the_collector_and_grafana_files_have_no_address_of_another_machine():
    files = [
        path
        for folder in ("grafana", "otel-collector", "prometheus")
        for path in (ROOT / "config" / folder).rglob("*.y*ml")
    ]
    assert files
    for path in files:
        addresses = set(re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", path.read_text()))
        assert addresses <= {"127.0.0.1"}, path


def test_promtool_accepts_every_query(promtool, tmp_path):  # noqa: F811 - the fixture
    rules = [{"record": f"query_{number}", "expr": filled(query)} for number, query in enumerate(QUERIES)]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))  # JSON is YAML
    assert f"{len(QUERIES)} rules found" in promtool("check", "rules", str(file))


def test_promtool_accepts_the_configuration_of_prometheus(promtool):  # noqa: F811 - the fixture
    assert "SUCCESS" in promtool("check", "config", str(ROOT / "config/prometheus/prometheus.yml"))


@pytest.mark.parametrize(
    ("expr", "filled_in"),
    [('a{job=~"$job"}', 'a{job=~"efo"}'), ('rate(a{x=~"$stream"}[$__rate_interval])', 'rate(a{x=~".*"}[15s])')],
)
def test_variables_are_filled_in(expr, filled_in):
    assert fill(expr, rate_interval="15s", job="efo") == filled_in
