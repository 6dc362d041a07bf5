"""What commands need beside efo, and how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from efo_service.errors import UnavailableError

_OF_THE_FAKE: Final = ("cbor2", "trustme")  # and h11, which comes with [service] too


def need_fake() -> None:
    """Raise UnavailableError unless everything is installed that FakeKinesis serves by.

    Some of it is imported only when a client asks for it: then is too late to say so.
    """
    try:
        for module in _OF_THE_FAKE:
            import_module(module)
    except ImportError as error:
        raise UnavailableError(
            f"what FakeKinesis serves by is not installed beside efo ({error}): pip install 'efo[service,testing]'"
        ) from error
