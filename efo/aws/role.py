"""A role to assume: whose credentials are used instead of those of the AWS chain, which call AssumeRole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from efo.errors import ConfigurationError

_ARN: Final = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
_EXTERNAL_ID: Final = re.compile(r"[\w+=,.@:/-]{2,1224}")
_SESSION_NAME: Final = re.compile(r"[\w+=,.@-]{2,64}")


@dataclass(frozen=True, slots=True)
class AssumedRole:
    """A role, often of another AWS account. Its credentials are refreshed before they expire.

    `arn`: the role's. `external_id`: what its trust policy may ask for. `session_name`: of the
    session, for CloudTrail. Raises ConfigurationError if one of them is not what STS takes.
    """

    arn: str
    external_id: str | None = None
    session_name: str = "efo"

    def __post_init__(self) -> None:
        if not _ARN.fullmatch(self.arn):
            raise ConfigurationError(f"{self.arn!r} is not the ARN of a role: expected arn:aws:iam::ACCOUNT:role/NAME")
        if self.external_id is not None and not _EXTERNAL_ID.fullmatch(self.external_id):
            raise ConfigurationError("the external id is not one: 2 to 1224 letters, digits and any of _+=,.@:/-")
        if not _SESSION_NAME.fullmatch(self.session_name):
            raise ConfigurationError(
                f"{self.session_name!r} is not the name of a role's session: 2 to 64 letters, digits and any of _+=,.@-"
            )

    def arguments(self) -> dict[str, str]:
        """Return the arguments of AssumeRole in addition to the ARN."""
        given = {"RoleSessionName": self.session_name, "ExternalId": self.external_id}
        return {name: value for name, value in given.items() if value is not None}
