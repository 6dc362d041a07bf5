"""Odd answers are doubted some times, in a row; what AWS documents is believed at once."""

import pytest

from efo.errors import AccessDeniedError, EventError, KmsError, OrderError, ServiceError, ThrottledError, TransportError
from efo.protocol.doubts import DOUBTS, Doubts, is_odd

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
    for _ in range(3 * DOUBTS):
        assert not doubts.is_final(error)
        doubts.settled()


@pytest.mark.parametrize("error", BELIEVED, ids=str)
def test_a_documented_refusal_is_believed_at_once(error):
    assert Doubts().is_final(error)
    assert not is_odd(error)


@pytest.mark.parametrize("error", [ThrottledError("x", ""), TransportError("x"), EventError("x")], ids=str)
def test_what_is_retried_anyway_is_never_final(error):
    doubts = Doubts()
    assert not any(doubts.is_final(error) for _ in range(100))
