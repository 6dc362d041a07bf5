"""Checks run side by side: one that hangs or fails stops only those that need it."""

from __future__ import annotations

import pytest
import trio

from efo.errors import ConfigurationError, TransportError
from efo_service.exit_codes import Exit
from efo_service.operations.doctor.running import Check, failed, not_tested, passed, run_checks, split_advice, untested


def check(name, outcome=None, *, needs=(), after=0.0):
    async def run():
        await trio.sleep(after)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or passed("fine")

    return Check(name, run, "look at it", needs)


async def results(checks, seconds=5.0):
    return {finding.name: finding.outcome for finding in await run_checks(checks, seconds)}


async def test_a_check_that_hangs_fails_at_its_time_limit_and_does_not_stop_the_others(autojump_clock):
    found = await results([check("slow", after=float("inf")), check("other", after=4.9), check("late", after=5.1)])
    assert found["other"].result == "passed"
    assert (found["slow"].result, found["slow"].detail) == ("failed", "no result within 5 s")
    assert found["slow"].remedy == "look at it; --timeout gives each check more time"
    assert found["slow"].code == Exit.UNAVAILABLE
    assert found["late"].result == "failed"


async def test_the_time_limit_does_not_include_the_wait_for_other_checks(autojump_clock):
    found = await results([check("first", after=4), check("second", needs=("first",), after=4)])
    assert {outcome.result for outcome in found.values()} == {"passed"}
    assert trio.current_time() == pytest.approx(8)


async def test_checks_that_do_not_need_each_other_run_at_the_same_time(autojump_clock):
    await results([check(str(number), after=4) for number in range(10)])
    assert trio.current_time() == pytest.approx(4)


async def test_what_needs_a_failed_check_is_not_tested_and_names_the_first_cause(autojump_clock):
    checks = [
        check("dns", failed("no such host", "check it")),
        check("tcp", needs=("dns",)),
        check("tls", needs=("tcp",)),
        check("disk"),
        check("both", needs=("disk", "tls")),
    ]
    found = await results(checks)
    assert [found[name].result for name in ("tcp", "tls", "both")] == ["not tested"] * 3
    assert [found[name].detail for name in ("tcp", "tls", "both")] == ["dns failed"] * 3
    assert found["disk"].result == "passed"


async def test_a_check_that_tests_nothing_is_no_obstacle_for_others(autojump_clock):
    found = await results([check("tls", not_tested("no TLS")), check("http2", needs=("tls",))])
    assert found["http2"].result == "passed"


@pytest.mark.parametrize(
    ("error", "code", "detail", "remedy"),
    [
        (TransportError("no route"), Exit.UNAVAILABLE, "no route", "look at it"),
        (ConfigurationError("no AWS region: set region"), Exit.CONFIGURATION, "no AWS region", "set region"),
        (
            PermissionError(13, "Permission denied", "/x"),
            Exit.UNAVAILABLE,
            "/x: Permission denied (PermissionError)",
            "look",
        ),
        (ZeroDivisionError("by zero"), Exit.INTERNAL, "ZeroDivisionError", "this is a defect of efo"),
        (ExceptionGroup("", [TransportError("lost")]), Exit.UNAVAILABLE, "lost", "look at it"),
    ],
)
async def test_a_check_that_raises_has_failed_with_the_exit_code_of_its_error(error, code, detail, remedy):
    found = await results([check("first", error), check("second")])
    assert (found["first"].result, found["first"].code, found["first"].detail) == ("failed", code, detail)
    assert found["first"].remedy.startswith(remedy)
    assert found["second"].result == "passed"


async def test_findings_keep_the_order_of_the_list(autojump_clock):
    found = await run_checks([check("a", after=2), check("b"), untested("c", "it would harm")], 5)
    assert [finding.name for finding in found] == ["a", "b", "c"]
    assert (found[2].outcome.result, found[2].outcome.detail) == ("not tested", "it would harm")


async def test_progress_names_what_runs(autojump_clock):
    seen = []
    checks = [check("a", after=2), check("b", needs=("a",)), check("c", after=1)]
    await run_checks(checks, 5, lambda *progress: seen.append(progress))
    assert (["a", "c"], 0, 3) in seen
    assert seen[2:] == [(["a"], 1, 3), ([], 2, 3), (["b"], 2, 3), ([], 3, 3)]


@pytest.mark.parametrize("checks", [[("a", ("b",)), ("b", ())], [("a", ()), ("a", ())], [("a", ("a",))]])
async def test_a_list_in_which_a_check_could_wait_forever_is_refused(checks):
    with pytest.raises(ValueError, match="come earlier"):
        await run_checks([check(name, needs=needs) for name, needs in checks], 5)


@pytest.mark.parametrize(
    ("message", "detail", "remedy"),
    [
        (
            "the certificate of host:443 is not trusted: expired; set ca_file to the authority that signed it",
            "the certificate of host:443 is not trusted: expired",
            "set ca_file to the authority that signed it",
        ),
        (
            "no AWS region: set region or AWS_REGION, or use the stream's ARN",
            "no AWS region",
            "set region or AWS_REGION, or use the stream's ARN",
        ),
        (
            "no java on PATH, and JAVA_HOME is not set. Spark needs Java 17 or newer. Install it, or set JAVA_HOME",
            "no java on PATH, and JAVA_HOME is not set. Spark needs Java 17 or newer",
            "Install it, or set JAVA_HOME",
        ),
        (
            "lease store x: the role lacks INSERT on efo_lease: as the owner of the table, GRANT INSERT TO the role",
            "lease store x: the role lacks INSERT on efo_lease",
            "as the owner of the table, GRANT INSERT TO the role",
        ),
        ("cannot resolve host: Name or service not known", "cannot resolve host: Name or service not known", ""),
        ("reset, checked: settings are used", "reset, checked: settings are used", ""),
    ],
)
def test_the_remedy_of_a_message_is_found(message, detail, remedy):
    assert split_advice(message) == (detail, remedy)
