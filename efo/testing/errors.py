"""The fake's only exception: an error response of AWS."""

from __future__ import annotations

from typing import Final

BAD_REQUEST: Final = 400


class FakeError(Exception):
    """An error response. `code`: AWS's name of the error. `status`: the HTTP status of the response.

    `message`: "" if the response has none.
    """

    def __init__(self, code: str, message: str = "", status: int = BAD_REQUEST) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.status = status


def invalid_argument(message: str) -> FakeError:
    """Return an InvalidArgumentException: the value has the right type, but is not allowed here."""
    return FakeError("InvalidArgumentException", message)


def validation(message: str) -> FakeError:
    """Return a ValidationException: the request violates a constraint of the service model."""
    return FakeError("ValidationException", message)


def not_found(message: str) -> FakeError:
    """Return a ResourceNotFoundException: the stream, shard or consumer does not exist."""
    return FakeError("ResourceNotFoundException", message)


def in_use(message: str) -> FakeError:
    """Return a ResourceInUseException: the resource exists already, is not ACTIVE, or has a subscription."""
    return FakeError("ResourceInUseException", message)


def limit_exceeded(message: str) -> FakeError:
    """Return a LimitExceededException: too many calls or too many resources."""
    return FakeError("LimitExceededException", message)


def serialization(message: str) -> FakeError:
    """Return a SerializationException: a value in the body has the wrong type."""
    return FakeError("SerializationException", message)


def stream_and_account(stream_arn: str) -> tuple[str, str]:
    """Return the name and the account in a stream's ARN, for AWS's messages: they name both."""
    rest, _, name = stream_arn.rpartition(":stream/")
    return name, rest.rpartition(":")[2]


def unreadable() -> FakeError:
    """Return a SerializationException for a body that cannot be decoded. AWS sends no message with it (observed)."""
    return FakeError("SerializationException")
