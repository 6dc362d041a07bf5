"""Which options of others are credentials: those of Spark, Hadoop, Kafka and their like, by how they are called.

No list of them could be whole. One that is taken for a credential and is none can still be set, by the environment.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(
    r"(?:secret|passw|passphrase|token|credential|authorization|jaas|(?:access|private|api)[._-]?key"
    r"|(?:account|encryption|keystore)[._-]?key(?![a-z])|(?<![a-z])(?:sas|pass|pwd)(?![a-z]))(?!s?[._-]?provider)",
    re.IGNORECASE,
)
"""Option names that speak of a credential; a provider of credentials is a class."""
_ABOUT: Final = re.compile(
    r"(?:class|type|path|file|location|ur[il]|endpoint|binding|enabled|mechanism|algorithm|regex|ratio|wait|[._-]ms)$",
    re.IGNORECASE,
)
"""How the names of those end that say something about a credential, and not the credential."""
_VALUE: Final = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@|[?&]sig=|(?:passw(?:or)?d|secret|token|(?:access|account)key)\s*=", re.IGNORECASE
)
"""A credential within a value: USER:PASSWORD@ of a URL, or password=, as JAAS, JDBC and Java's own options have it."""


def is_credential(name: str, value: str) -> bool:
    """Tell whether an option is a credential, or has one in its value. An ARN names a key, and is none."""
    if _VALUE.search(value):
        return True
    return bool(_NAME.search(name)) and not _ABOUT.search(name) and not value.startswith("arn:")
