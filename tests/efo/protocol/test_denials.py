"""Which refusals are final, and until when."""

import pytest

from efo.errors import (
    AccessDeniedError,
    ConfigurationError,
    KmsError,
    RejectedCredentialsError,
    ResourceNotFoundError,
    ServiceError,
    TransportError,
)
from efo.protocol.denials import GRACE, Denials, is_final

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
