"""From what a dashboard shows to Grafana's JSON, with the typed builders of Grafana's Foundation SDK."""

from __future__ import annotations

import json
from typing import Any, Final

from grafana_foundation_sdk.builders import (
    common as common_builders,
    dashboard as builders,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.grafana.model import VARIABLES, Dashboard, Panel

_SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_SIZE: Final = {"stat": (4, 4), "timeseries": (12, 8), "table": (12, 8)}
_TAG: Final = "efo"

_PanelBuilder = stat.Panel | table.Panel | timeseries.Panel


def as_json(dashboard: Dashboard) -> str:
    """Return the JSON of a dashboard, as Grafana imports and provisions it. The same dashboard is the same text."""
    builder = (
        builders.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.about)
        .tags([_TAG])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(_link_to_the_others())
        .annotation(_firing_alerts())
        .with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for name, (label, query) in VARIABLES.items():
        builder.with_variable(_variable(name, label, query))
    builder.with_variable(
        builders.TextBoxVariable("runbook")
        .label("Runbook")
        .description("The address at which docs/runbook.md is read. The links of the panels begin with it.")
        .default_value("docs/runbook.md")
    )
    number = 0
    for row in dashboard.rows:
        builder.with_row(builders.Row(row.title).id(number := number + 1))
        for panel in row.panels:
            builder.with_panel(_panel(panel, number := number + 1))
    return json.dumps(builder.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _link_to_the_others() -> builders.DashboardLink:
    link = builders.DashboardLink("efo").type(models.DashboardLinkType.DASHBOARDS).tags([_TAG])
    return link.as_dropdown(True).keep_time(True).include_vars(True)


def _firing_alerts() -> builders.AnnotationQuery:
    expr = 'ALERTS{alertname=~"Efo.*", alertstate="firing", job=~"$job"}'
    return builders.AnnotationQuery().name("Alerts").datasource(_SOURCE).enable(True).icon_color("red").expr(expr)


def _variable(name: str, label: str, query: str) -> builders.QueryVariable:
    variable = builders.QueryVariable(name).label(label).datasource(_SOURCE).query(query)
    variable.current(models.VariableOption(selected=True, text="All", value="$__all"))
    variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)
    return variable.multi(True).include_all(True).all_value(".*")


def _panel(panel: Panel, number: int) -> _PanelBuilder:
    builder = _of_kind(panel)
    for index, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + index))
        if panel.kind == "table":
            target.instant().format(PromQueryFormat.TABLE)
        elif panel.kind == "stat":
            target.instant()
        else:
            target.range()
        builder.with_target(target)
    width, height = _SIZE[panel.kind]
    builder.id(number).title(panel.title).description(_description(panel)).datasource(_SOURCE)
    builder.span(width).height(height)
    if panel.kind != "table":
        builder.unit(panel.unit)
    builder.links([_link_to_the_runbook(alert) for alert in panel.alerts])
    if panel.steps is not None:
        builder.thresholds(_thresholds(*panel.steps))
    return builder


def _of_kind(panel: Panel) -> _PanelBuilder:
    if panel.kind == "stat":
        return stat.Panel().color_mode(common.BigValueColorMode.VALUE).graph_mode(common.BigValueGraphMode.NONE)
    if panel.kind == "table":
        return table.Panel()
    builder = timeseries.Panel().min(0).fill_opacity(30 if panel.stacked else 10)
    builder.show_points(common.VisibilityMode.NEVER).tooltip(
        common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    )
    if panel.stacked:
        builder.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if panel.steps is not None:
        style = common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        builder.thresholds_style(style)
    return builder


def _description(panel: Panel) -> str:
    return f"{panel.about}\n\nAlerts: {', '.join(panel.alerts)}." if panel.alerts else panel.about


def _link_to_the_runbook(alert: str) -> builders.DashboardLink:
    link = builders.DashboardLink(f"Runbook: {alert}").type(models.DashboardLinkType.LINK)
    return link.url(f"${{runbook}}#{alert.lower()}").target_blank(True)


def _thresholds(orange: float, red: float) -> builders.ThresholdsConfig:
    steps = [models.Threshold(None, "green"), models.Threshold(orange, "orange"), models.Threshold(red, "red")]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def queries_in(text: str) -> list[str]:
    """Return the expressions of all queries in the JSON of a dashboard."""
    content: dict[str, Any] = json.loads(text)
    return [target["expr"] for panel in content["panels"] for target in panel.get("targets", ())]
