"""What a stream and a consumer have besides records: tags, and the key of server-side encryption."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from unicodedata import category

from efo.testing.errors import FakeError, invalid_argument

MAX_TAGS: Final = 50
"""Maximum number of tags of one resource."""


_MARKS: Final = frozenset("_./=+-@:")


class Tags:
    """The tags of one resource, by key."""

    def __init__(self, tags: Mapping[str, str] | None = None) -> None:
        self._tags: dict[str, str] = {}
        self.add(tags or {})

    def add(self, tags: Mapping[str, str]) -> None:
        """Add tags; replace the values of existing ones.

        Raises InvalidArgumentException: too many tags, or a character that is not allowed. Then none is added.
        """
        _check_characters((*tags, *tags.values()))
        merged = self._tags | dict(tags)
        if len(merged) > MAX_TAGS:
            raise invalid_argument(f"The resource would have {len(merged)} tags: at most {MAX_TAGS} are allowed")
        self._tags = merged

    def remove(self, keys: Iterable[str]) -> None:
        """Remove tags. Missing keys are ignored. Raises InvalidArgumentException: a character is not allowed."""
        removed = tuple(keys)
        _check_characters(removed)
        for key in removed:
            self._tags.pop(key, None)

    def listed(self) -> list[dict[str, str]]:
        """Return the tags, sorted by key (AWS: Tag)."""
        return [{"Key": key, "Value": value} for key, value in sorted(self._tags.items())]


def _check_characters(texts: Iterable[str]) -> None:
    """Raise InvalidArgumentException unless all characters of the keys and values are allowed.

    Letters, digits and spaces of any script are allowed, and some marks. AWS documents the marks without the colon,
    but accepts it.
    """
    for character in sorted(set().union(*texts)):
        if character == "%":
            raise invalid_argument(
                "Some tags contained illegal characters. The allowed characters are Unicode letters, white-spaces, "
                "'_',',','/','=','+','-','@'."
            )
        if character not in _MARKS and category(character)[0] not in "LNZ":
            raise invalid_argument(
                "Some tags contain invalid characters. Valid characters: Unicode letters, digits, white space, "
                "_ . / = + - % @."
            )


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
