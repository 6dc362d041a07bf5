"""Recognizes credentials among the options of Spark, Hadoop, Kafka, sinks and similar software, by their names.

No list of such options can be complete. An option that is wrongly recognized can still be set in the environment.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(
    r"(?:secret|passw|passphrase|token|credential|authorization|jaas|(?<![a-z])bearer(?![a-z])"
    r"|(?:access|private|api|client|shared|signing|hmac)[._-]?key|connection[._-]?string"
    r"|(?:account|encryption|keystore)[._-]?key(?![a-z])|(?<![a-z])(?:sas|pass|pwd)(?![a-z]))(?!s?[._-]?provider)",
    re.IGNORECASE,
)
"""Option names that refer to a credential. The provider of a credential is a class, and not matched."""
_NOT_THE_CREDENTIAL: Final = re.compile(
    r"(?:class|type|path|file|location|ur[il]|endpoint|binding|enabled|mechanism|algorithm|regex|ratio|wait|[._-]ms)$",
    re.IGNORECASE,
)
"""Suffixes of option names that describe a credential but do not contain it."""
_VALUE: Final = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@|[?&]sig=|(?:passw(?:or)?d|secret|token|(?:access|account)key)\s*=", re.IGNORECASE
)
"""A credential within a value: USER:PASSWORD@ in a URL, or password= as in JAAS, JDBC and Java options."""


def is_credential(name: str, value: str) -> bool:
    """Return whether an option is a credential or has one in its value. An ARN only names a key."""
    if _VALUE.search(value):
        return True
    return bool(_NAME.search(name)) and not _NOT_THE_CREDENTIAL.search(name) and not value.startswith("arn:")
