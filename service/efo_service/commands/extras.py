"""Optional packages that commands need, and how to install them."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from efo_service.errors import UnavailableError

_FAKE_PACKAGES: Final = ("cbor2", "trustme")  # and h11, which the extras `service` and `cli` install too


def require_fake() -> None:
    """Raise UnavailableError if a package that FakeKinesis needs is not installed.

    FakeKinesis imports some of them only when a client needs them, which is too late for a clear error.
    """
    try:
        for module in _FAKE_PACKAGES:
            import_module(module)
    except ImportError as error:
        raise UnavailableError(
            f"a package that FakeKinesis needs is missing ({error}): pip install 'efo[cli]'"
        ) from error
