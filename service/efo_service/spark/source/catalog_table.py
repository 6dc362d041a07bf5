"""The options of a table in Spark's catalog: `CREATE TABLE orders USING efo OPTIONS (...) LOCATION '...'`.

Spark gives them to a Python source once, when the table is created, among the table's properties. When the table is
read it gives none of them, and the schema that the catalog has kept (seen with Spark 4.0.5 to 4.3.0). So they are in
the metadata of its first column. They are no secret: the catalog shows them anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructType

from efo.errors import ConfigurationError

_KEY: Final = "efo.options"
_OPTION: Final = "option."
"""What Spark puts before each name of the clause OPTIONS. Other names are properties of the table, such as owner."""


def creating(arguments: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created, with its location as path; None if there is no table."""
    lower = {name.lower(): text for name, text in arguments.items()}
    if "provider" not in lower:
        return None
    options = {name.removeprefix(_OPTION): text for name, text in lower.items() if name.startswith(_OPTION)}
    return {**options, "path": lower["path"]} if "path" in lower else options


def keep(schema: StructType, options: Mapping[str, str]) -> None:
    """Put the options into a schema."""
    schema.fields[0].metadata[_KEY] = dict(options)


def kept(schema: StructType) -> dict[str, str]:
    """Return the options that a schema has kept: none, if it is that of no table."""
    return dict(next((field.metadata[_KEY] for field in schema.fields if _KEY in field.metadata), {}))


def reading(schema: StructType, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a read: those of the table, if it is one, and those of the query, which go before them.

    Raises ConfigurationError if there are none.
    """
    options = {**kept(schema), **{name.lower(): text for name, text in arguments.items()}}
    if not options:
        raise ConfigurationError(
            "there are no options. Spark gives none of a table whose columns are listed: CREATE TABLE without the list"
            " of columns, and choose them with the option columns"
        )
    return options
