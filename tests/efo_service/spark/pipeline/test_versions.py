"""Which Spark, which source and which packages fit each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from efo.errors import ConfigurationError
from efo_service.spark.pipeline.settings import PipelineSettings
from efo_service.spark.pipeline.versions import check_versions

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def settings(**changes) -> PipelineSettings:
    return PipelineSettings(log=Path("log"), topic="orders", output="out", checkpoint="state", **changes)


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.2.0.dev1"])
def test_packages_of_the_same_spark_are_accepted(version) -> None:
    packages = {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:3.5.0, {DELTA}"}
    check_versions(version, settings(spark_options=packages, jars=(Path("delta-spark_4.2_2.13-4.4.0.jar"),)))


def test_packages_that_name_no_spark_are_accepted() -> None:
    check_versions("4.3.0", settings(spark_options={"spark.jars.packages": "io.delta:delta-spark_2.13:4.4.0"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"spark_options": {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:3.5.0,{DELTA}"}},
            "^io.delta:delta-spark_4.2_2.13:4.4.0 is built for Spark 4.2, but this is Spark 4.3.0: install 'pyspark==4",
        ),
        ({"spark_options": {"spark.jars.packages": ICEBERG}}, "built for Spark 4.1, but this is Spark 4.3.0"),
        (
            {"spark_options": {"spark.jars": "/opt/a.jar,/opt/iceberg-spark-runtime-4.1_2.13-1.12.0.jar"}},
            "^iceberg-spark-runtime-4.1_2.13-1.12.0.jar is built for Spark 4.1",
        ),
        ({"jars": (Path("/opt/delta-spark_4.2_2.13-4.4.0.jar"),)}, "^delta-spark_4.2_2.13-4.4.0.jar is built for"),
    ],
)
def test_packages_of_another_spark_are_refused(changes, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_versions("4.3.0", settings(**changes))


def test_the_log_needs_a_spark_with_python_sources() -> None:
    with pytest.raises(
        ConfigurationError, match=r'source = "efo" needs Spark 4\.0 or newer, but this is Spark 3\.5\.9'
    ):
        check_versions("3.5.9", settings())
    check_versions("3.5.9", settings(kafka={"subscribe": "orders"}))
    check_versions("4.0.0", settings())


def test_a_limit_needs_a_spark_that_has_limits() -> None:
    with pytest.raises(ConfigurationError, match=r"max_records needs Spark 4\.2 or newer, but this is Spark 4\.1\.4"):
        check_versions("4.1.4", settings(max_records=10))
    check_versions("4.1.4", settings(max_records=10, kafka={"subscribe": "orders"}))
    check_versions("4.2.0", settings(max_records=10))


def test_the_version_ten_is_newer_than_two() -> None:
    check_versions("4.10.0", settings())
