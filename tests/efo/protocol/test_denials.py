"""Which refusals are final, and until when."""

from __future__ import annotations

import pytest

from efo.errors import (
    AccessDeniedError,
    ConfigurationError,
    EventError,
    KmsError,
    OrderError,
    RejectedCredentialsError,
    ResourceNotFoundError,
    ServiceError,
    ThrottledError,
    TransportError,
)
from efo.protocol.denials import DOUBTS, GRACE, Denials, Doubts, is_final, is_odd

DENIED = AccessDeniedError("AccessDeniedException", "no")
OF_PERMISSIONS = [DENIED, KmsError("KMSDisabledException", ""), RejectedCredentialsError("InvalidClientTokenId", "")]


@pytest.mark.parametrize("error", OF_PERMISSIONS)
def test_before_the_first_success_a_denial_may_pass_for_a_while(error):
    denials = Denials()
    assert not denials.is_final(error, 100.0)
    assert not denials.is_final(error, 100.0 + GRACE - 0.1)
    assert denials.is_final(error, 100.0 + GRACE)


@pytest.mark.parametrize("error", OF_PERMISSIONS)
def test_after_it_a_denial_passes_whenever_it_does(error):
    denials = Denials()
    denials.worked()
    assert not any(denials.is_final(error, 100.0 + hours * 3600) for hours in range(100))


def test_another_failure_begins_the_time_of_a_denial_anew():
    denials = Denials()
    denials.is_final(DENIED, 0.0)
    denials.is_final(TransportError(""), GRACE - 1)
    assert not denials.is_final(DENIED, GRACE)
    assert not denials.is_final(DENIED, 2 * GRACE - 1)
    assert denials.is_final(DENIED, 2 * GRACE)


def test_the_first_success_may_come_after_a_denial():
    denials = Denials()
    denials.is_final(DENIED, 0.0)
    denials.worked()
    assert not denials.is_final(DENIED, 2 * GRACE)


@pytest.mark.parametrize(
    "error", [ServiceError("ValidationException", ""), ResourceNotFoundError("x", ""), ConfigurationError("x")]
)
def test_other_errors_that_repeating_cannot_cure_are_final(error):
    denials = Denials()
    denials.worked()
    assert denials.is_final(error, 0.0)
    assert is_final(error)


def test_what_may_be_repeated_is_never_final():
    assert not Denials().is_final(TransportError(""), 0.0)
    assert not is_final(TransportError(""))


ODD = [
    ServiceError("HTTP400", "<html>", status=400),
    ServiceError("SerializationException", "", status=400),
    ServiceError("BadRequest", "", status=400),
]
BELIEVED = [
    ServiceError("InvalidArgumentException", "no such position", status=400),
    ServiceError("ValidationException", "", status=400),
    AccessDeniedError("AccessDeniedException", "no", status=400),
    KmsError("KMSDisabledException", "no"),
    OrderError("records arrived after later ones"),
]


@pytest.mark.parametrize("error", ODD, ids=str)
def test_an_odd_answer_is_believed_when_it_has_repeated(error):
    doubts = Doubts()
    assert [doubts.is_final(error) for _ in range(DOUBTS + 1)] == [False] * DOUBTS + [True]
    doubts = Doubts()
    for _ in range(3):
        assert not any(doubts.is_final(error) for _ in range(DOUBTS))
        doubts.settled()


@pytest.mark.parametrize("error", BELIEVED, ids=str)
def test_a_documented_refusal_is_believed_at_once(error):
    assert Doubts().is_final(error)
    assert not is_odd(error)


def test_what_cannot_be_read_is_odd():
    assert is_odd(EventError("no JSON"))


@pytest.mark.parametrize("error", [ThrottledError("x", ""), TransportError("x"), EventError("x")], ids=str)
def test_what_is_retried_anyway_is_never_final(error):
    doubts = Doubts()
    assert not any(doubts.is_final(error) for _ in range(100))
