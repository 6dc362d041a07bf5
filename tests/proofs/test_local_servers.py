"""The real servers that tests start."""

from __future__ import annotations

import os

import psycopg

from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.running import Servers


def test_postgres_starts_with_a_umask_that_hides_new_files_from_other_users():
    os.umask(0o077)  # `same_umask` restores it
    with Servers() as servers, psycopg.connect(servers.url(serve_postgres)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
