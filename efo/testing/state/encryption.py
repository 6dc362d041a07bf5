"""Server-side encryption of a stream: which key, and how KMS fails when a test tells it to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from efo.testing.errors import FakeError, invalid_argument

KMS_ERRORS: Final[dict[str, str]] = {
    "KMSDisabledException": "The KMS key {key} is disabled",
    "KMSInvalidStateException": "The KMS key {key} is not in a state in which it can be used",
    "KMSAccessDeniedException": "The caller has no right to use the KMS key {key}",
    "KMSNotFoundException": "The KMS key {key} does not exist",
    "KMSOptInRequired": "The account has not opted in to KMS",
    "KMSThrottlingException": "KMS is asked too often about the key {key}",
}
"""By the name of the error: what its message says (AWS: GetRecords, Errors)."""


@dataclass(slots=True)
class Encryption:
    """A stream's encryption. `failing`: the name of the error that every use of the key meets, None when it works."""

    type: str = "NONE"
    key_id: str | None = None
    failing: str | None = None

    def start(self, key_id: str) -> None:
        """Encrypt what is put from now on (AWS: StartStreamEncryption). Raises what KMS raises."""
        self._raise_failure(key_id)
        self.type, self.key_id = "KMS", key_id

    def stop(self, key_id: str) -> None:
        """Encrypt no more (AWS: StopStreamEncryption). Raises InvalidArgumentException: it is another key's."""
        if self.type != "KMS" or key_id != self.key_id:
            raise invalid_argument(f"The stream is not encrypted with the key {key_id}")
        self.type, self.key_id = "NONE", None

    def check(self) -> None:
        """Raise what KMS raises when the key is used; nothing for a stream that is not encrypted."""
        if self.type == "KMS":
            self._raise_failure(self.key_id)

    def _raise_failure(self, key_id: str | None) -> None:
        if self.failing is not None:
            raise FakeError(self.failing, KMS_ERRORS[self.failing].format(key=key_id))
