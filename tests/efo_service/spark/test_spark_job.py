from __future__ import annotations

import json
import signal

import pytest

from efo_service.exit_codes import Exit
from efo_service.spark_job import main


@pytest.fixture(autouse=True)
def signals():
    """The job handles signals for as long as its process lives; here that is not the end of the test run."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_configuration_that_is_wrong_is_said(tmp_path, capsys) -> None:
    assert main(["--config", str(tmp_path / "nothing.toml")]) == Exit.CONFIGURATION
    assert "nothing.toml" in capsys.readouterr().err


def test_it_has_help_with_an_example(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "example: spark-submit" in capsys.readouterr().out


@pytest.mark.spark
def test_it_runs_in_the_session_that_is_there_and_leaves_it(spark, log, tmp_path, capsys) -> None:
    log.grow(0, 10)
    config = tmp_path / "efo.toml"
    config.write_text(
        f'[kinesis]\nstream = "{log.topic}"\n[relay]\ndirectory = "{log.root}"\n'
        f'[pipeline]\noutput = "{(tmp_path / "out").as_uri()}"\ncheckpoint = "{tmp_path / "state"}"\n'
    )
    assert main(["--config", str(config), "--available-now"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["result"]["rows"]["records"] == 10
    assert spark.read.parquet(str(tmp_path / "out" / "records")).count() == 10
