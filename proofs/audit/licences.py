"""The licences of the installed packages, as SPDX expressions, judged by an allow list. Pure, but for `installed`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from email.message import Message
from importlib.metadata import distributions
from typing import Any, Final, cast

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name

from proofs.audit.locks import Pin

# What packages without License-Expression (PEP 639) say, in their field License or in a classifier.
SPDX: Final[Mapping[str, str]] = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",  # kubernetes-validate, whose LICENSE says 2.0
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "LicenseRef-BSD",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "LicenseRef-BSD",  # the number of its clauses is not stated
    "ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": "LicenseRef-Public-Domain",
    "Public domain": "LicenseRef-Public-Domain",  # pyelftools
    "Python Software Foundation License": "PSF-2.0",
}
STATED: Final[Mapping[str, str]] = {
    "axe-playwright-python": "MIT",  # its LICENSE
    "crontab": "LGPL-2.1-only OR LGPL-3.0-only",  # its LICENSE and LICENSE3; its classifiers name no version of one
    # Its classifiers name the licences of its whole repository: the GPL is that of an Emacs mode, which no wheel has.
    "docutils": "LicenseRef-Public-Domain AND BSD-2-Clause AND BSD-3-Clause",
    "atheris": "Apache-2.0",  # its LICENSE
    "wrapt": "BSD-2-Clause",  # its LICENSE
}
"""What packages say in prose, where their metadata says something else or nothing."""
_WORD: Final = re.compile(r"[()]|[^\s()]+")


def installed(paths: Sequence[str]) -> dict[tuple[str, str], str | None]:
    """Return the licence of each package in these directories, by name and version; None: it states none."""
    return {
        (canonicalize_name(distribution.metadata["Name"]), distribution.version): expression_of(
            cast("Message[str, str]", distribution.metadata)
        )
        for distribution in distributions(path=list(paths))
    }


def expression_of(metadata: Message[str, str]) -> str | None:
    """Return the SPDX expression of a package's metadata; None if it is missing or not understood.

    Of several classifiers all have to be allowed, because nothing says that one may choose.
    """
    if (prose := STATED.get(canonicalize_name(metadata.get("Name") or ""))) is not None:
        return prose
    for field in ("License-Expression", "License"):
        if (stated := _canonical(metadata.get(field) or "")) is not None:
            return stated
    names = [
        value.rpartition(" :: ")[2]
        for value in metadata.get_all("Classifier", [])
        if value.startswith("License :: ") and value != "License :: OSI Approved"
    ]
    known = [_canonical(name) for name in names]
    return " AND ".join(cast("list[str]", known)) if known and None not in known else None


def _canonical(stated: str) -> str | None:
    stated = SPDX.get(stated.strip(), stated.strip())
    try:
        return str(canonicalize_license_expression(stated)) if stated else None
    except InvalidLicenseExpression:
        return None


def refused_as_programs(refused: Mapping[str, str], programs: Mapping[str, str]) -> dict[str, str]:
    """Return what stays refused if these packages, by name with their licence, are programs that are only run."""
    return {package: found for package, found in refused.items() if programs.get(package.partition("==")[0]) != found}


def is_allowed(expression: str, allowed: Collection[str]) -> bool:
    """Return whether the list allows an SPDX expression: one side of each OR, both sides of each AND."""
    return _either(iter(_WORD.findall(_one_word(expression))), {_one_word(licence) for licence in allowed})


def _one_word(expression: str) -> str:
    """Return an expression in which a licence with an exception is one word: another licence than without it."""
    return expression.replace(" WITH ", "-WITH-")


def _either(words: Iterator[str], allowed: Collection[str]) -> bool:
    """Read up to a closing parenthesis or the end. AND binds more tightly than OR."""
    result, group = False, True
    for word in words:
        if word == ")":
            break
        if word == "OR":
            result, group = result or group, True
        elif word != "AND":
            term = _either(words, allowed) if word == "(" else word in allowed
            group = group and term
    return result or group


def judge(pins: Iterable[Pin], found: Mapping[tuple[str, str], str | None], allowed: Collection[str]) -> dict[str, Any]:
    """Return what is allowed, what is refused, what states no known licence, and what could not be looked at."""
    verdict: dict[str, Any] = {"allowed": 0, "refused": {}, "unknown": [], "not_installed": [], "other_platform": []}
    for pin in sorted(set(pins)):
        package = f"{pin.name}=={pin.version}"
        if (pin.name, pin.version) not in found:
            verdict["not_installed" if pin.here else "other_platform"].append(package)
        elif (expression := found[pin.name, pin.version]) is None:
            verdict["unknown"].append(package)
        elif is_allowed(expression, allowed):
            verdict["allowed"] += 1
        else:
            verdict["refused"][package] = expression
    return verdict
