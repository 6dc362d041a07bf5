"""The one error of the fake: what AWS would answer, as a value that can be raised."""

from __future__ import annotations

from typing import Final

BAD_REQUEST: Final = 400


class FakeError(Exception):
    """An error in AWS's shape: `code` is its name, `status` the HTTP status of the answer that carries it."""

    def __init__(self, code: str, message: str, status: int = BAD_REQUEST) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def invalid_argument(message: str) -> FakeError:
    """Return an InvalidArgumentException: the value is of the right type, but not allowed here."""
    return FakeError("InvalidArgumentException", message)


def validation(message: str) -> FakeError:
    """Return a ValidationException: the request does not satisfy the service model's constraints."""
    return FakeError("ValidationException", message)


def not_found(message: str) -> FakeError:
    """Return a ResourceNotFoundException: no such stream, shard or consumer."""
    return FakeError("ResourceNotFoundException", message)


def in_use(message: str) -> FakeError:
    """Return a ResourceInUseException: it exists already, is not ACTIVE, or is subscribed to."""
    return FakeError("ResourceInUseException", message)


def limit_exceeded(message: str) -> FakeError:
    """Return a LimitExceededException: called too often."""
    return FakeError("LimitExceededException", message)


def serialization(message: str) -> FakeError:
    """Return a SerializationException: the body cannot be read, or a value in it is of the wrong type."""
    return FakeError("SerializationException", message)
