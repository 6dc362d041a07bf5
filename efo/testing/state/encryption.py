"""Server-side encryption of a stream: its key, and the KMS errors that a test requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from efo.testing.errors import FakeError, invalid_argument

KMS_ERRORS: Final[dict[str, str]] = {
    "KMSDisabledException": "The KMS key {key} is disabled",
    "KMSInvalidStateException": "The KMS key {key} is in a state in which it cannot be used",
    "KMSAccessDeniedException": "The caller is not allowed to use the KMS key {key}",
    "KMSNotFoundException": "The KMS key {key} does not exist",
    "KMSOptInRequired": "The account has not opted in to KMS",
    "KMSThrottlingException": "Too many KMS requests for the key {key}",
}
"""The message of each KMS error, by its name (AWS: GetRecords, Errors)."""


@dataclass(slots=True)
class Encryption:
    """A stream's encryption. `failing`: the KMS error that every use of the key raises; None: the key works."""

    type: str = "NONE"
    key_id: str | None = None
    failing: str | None = None

    @property
    def of_records(self) -> str | None:
        """The type in records and in responses to puts: None, and so not sent, without encryption."""
        return None if self.type == "NONE" else self.type

    def start(self, key_id: str) -> None:
        """Encrypt records that are put from now on (AWS: StartStreamEncryption). Raises the KMS error, if any."""
        self._raise_failure(key_id)
        self.type, self.key_id = "KMS", key_id

    def stop(self, key_id: str) -> None:
        """Stop encryption (AWS: StopStreamEncryption). Raises InvalidArgumentException: the key is not in use."""
        if self.type != "KMS" or key_id != self.key_id:
            raise invalid_argument(f"The stream is not encrypted with the key {key_id}")
        self.type, self.key_id = "NONE", None

    def check(self) -> None:
        """Raise the KMS error, if any, of using the key. A stream without encryption uses no key."""
        if self.type == "KMS":
            self._raise_failure(self.key_id)

    def _raise_failure(self, key_id: str | None) -> None:
        if self.failing is not None:
            raise FakeError(self.failing, KMS_ERRORS[self.failing].format(key=key_id))
