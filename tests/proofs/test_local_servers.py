"""The real servers that tests start."""

from __future__ import annotations

import os

import psycopg
import pytest

from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.running import NotInstalledError


def test_postgres_starts_with_a_umask_that_hides_new_files_from_other_users():
    before = os.umask(0o077)
    try:
        with serve_postgres() as url, psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    except NotInstalledError as error:
        pytest.skip(str(error))
    finally:
        os.umask(before)
