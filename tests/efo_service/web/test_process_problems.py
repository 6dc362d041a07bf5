"""What is wrong with a process, and its last errors."""

from __future__ import annotations

from efo_service.web.process_problems import ProcessProblems

KIND = "certificate_not_renewed"


def test_an_error_stays_known_after_its_problem_is_over_with_its_beginning_and_count() -> None:
    times = iter([10.0, 20.0, 30.0])
    problems = ProcessProblems(lambda: next(times))
    problems.ended(KIND)
    assert (problems.texts(), problems.last_errors()) == ((), ())
    assert problems.began(KIND, "no key")
    assert not problems.began(KIND, "no certificate")
    assert problems.texts() == ("no certificate",)
    [error] = problems.last_errors()
    assert (error.system, error.error_type, error.text) == ("certificate", KIND, "no certificate")
    assert (error.since, error.count, error.is_over) == (10.0, 2, False)
    problems.ended(KIND)
    assert (problems.texts(), [error.is_over for error in problems.last_errors()]) == ((), [True])
    assert problems.began(KIND, "no key")
    assert [(error.since, error.count, error.is_over) for error in problems.last_errors()] == [(30.0, 1, False)]


def test_what_waits_for_a_restart_is_a_problem_and_no_error() -> None:
    problems = ProcessProblems()
    problems.began("restart_needed", "service.port")
    assert (problems.texts(), problems.last_errors()) == (("service.port",), ())
