"""What /status of `efo pipeline` shows."""

from __future__ import annotations

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from efo_service.web.metrics import metrics_served
from efo_service.web.security.access import Access, tokens_of
from efo_service.web.security.guard import Guard
from efo_service.web.status import PipelineStatus

TOKEN = "0123456789abcdef0123"

BATCH = {"query": "records", "batch_id": 3, "rows_total": 10, "rows_written_total": 9, "lag": 2, "watermark": None}
RESTARTED = {"started_again": "records", "because": "a Python worker is late"}


@pytest.fixture
def status() -> PipelineStatus:
    return PipelineStatus({"reader": "r", "topic": "orders"}, clock=lambda: 100.0)


def test_it_waits_for_its_topic_and_names_the_failure_of_a_store_and_how_often_it_came(status) -> None:
    status({"waiting_for": "orders", "log": "log", "because": ""})
    assert status.status()["problems"] == ["waiting for the topic orders in log: start efo run, which makes it"]
    assert status.status()["last_errors"] == []
    for because in ("no answer", "refused"):
        status({"waiting_for": "orders", "log": "s3://b", "because": because})
    waiting, error = status.status()["problems"]
    assert waiting == "waiting for the topic orders in s3://b: refused"
    assert error.startswith("refused: make the store of the log reachable")
    [error] = status.status()["last_errors"]
    assert (error["system"], error["text"], error["count"], error["since"], error["is_over"]) == (
        "pipeline", "refused", 2, 100.0, False,
    )  # fmt: skip
    status({"waiting_for": "orders", "log": "s3://b", "because": ""})
    assert [error["is_over"] for error in status.status()["last_errors"]] == [True]


def test_a_query_that_is_started_again_is_an_error_until_its_next_batch(status) -> None:
    status(RESTARTED)
    [problem] = status.status()["problems"]
    assert problem.startswith("the query records was started again: a Python worker is late: give Spark more cores")
    status(BATCH)
    shown = status.status()
    assert (shown["problems"], shown["last_errors"][0]["is_over"]) == ([], True)
    assert shown["queries"] == {"records": {**{name: BATCH[name] for name in list(BATCH)[1:]}, "ended_at": 100.0}}
    status(RESTARTED)
    assert [(error["count"], error["is_over"]) for error in status.status()["last_errors"]] == [(1, False)]


def test_it_is_served_beside_the_metrics_to_those_who_may_read(status) -> None:
    status(BATCH)
    guard = Guard(Access(*tokens_of(TOKEN)))
    with metrics_served(CollectorRegistry(), "127.0.0.1", 0, status=(guard, status.status)) as url:
        passed_on = {"X-Forwarded-For": "192.0.2.1"}
        assert httpx2.get(f"{url}/status", headers=passed_on).status_code == 401
        answer = httpx2.get(f"{url}/status", headers={**passed_on, "Authorization": f"Bearer {TOKEN}"})
    assert answer.json() == status.status()
