"""The configuration of the processes of a run: defaults, except for addresses, paths and shorter intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping


def efo_config(stream: str, url: str, ca_file: str, *tables: str, leases: str = "sqlite") -> str:
    """Return the TOML of a relay's configuration.

    `url`, `ca_file`: of FakeKinesis. `tables`: of the output, and of the pipeline. `leases`: [leases] store.
    """
    common = f"""\
[kinesis]
stream = "{stream}"
region = "us-east-1"
endpoint_url = "{url}"
ca_file = "{ca_file}"

[consumer]
application = "e2e"
checkpoint_seconds = 1

[leases]
store = "{leases}"
path = "leases.sqlite"
failover_seconds = 3

[service]
port = 0
"""
    return "\n".join([common, *tables])


def object_log(url: str, options: Mapping[str, object]) -> str:
    """Return the tables of a log on an object store. `options`: [relay.store_options]."""
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
    return f"""\
[relay]
directory = "{url}"
commit_seconds = 0.2
maintenance_seconds = 2

[relay.store_options]
{lines}
timeout_seconds = 10
"""
