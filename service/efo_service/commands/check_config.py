"""`efo check-config`: prints the resolved settings."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from cyclopts import Parameter

from efo_service.commands.options import ConfigFile, Json
from efo_service.config.loading import home_of, load_all
from efo_service.config.rendering import (
    changed as changed_settings,
    defaults as all_defaults,
    resolved_all,
    schema as json_schema,
    to_toml,
)


def check_config(
    *,
    config: ConfigFile = None,
    defaults: Annotated[
        bool, Parameter(negative="", help="Print config/efo.full.toml: all settings with explanations.")
    ] = False,
    schema: Annotated[
        bool, Parameter(negative="", help="Print config/efo.schema.json: the JSON Schema of the file, for editors.")
    ] = False,
    changed: Annotated[
        bool, Parameter(negative="", help="Print only the settings that differ from their defaults.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the configuration, and print every setting with its resolved value."""
    if defaults:
        sys.stdout.write(all_defaults())
        return
    if schema:
        sys.stdout.write(json_schema())
        return
    from efo.aws.variables import check_variables  # noqa: PLC0415 - botocore is slow to import

    configuration = load_all(config)
    tables = changed_settings(configuration, home_of(config)) if changed else resolved_all(configuration, unset=True)
    check_variables()
    sys.stdout.write(json.dumps(tables, indent=2) + "\n" if as_json else to_toml(tables))
