"""The bills by Spark, from the log that `efo run` writes: `python -m orders.spark_job var/log`."""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, sum as total


def bills(session: SparkSession, log: str) -> DataFrame:
    """Return what each customer owes, in cents."""
    records = session.read.format("efo").option("subscribe", "orders").load(log)
    order = from_json(col("value").cast("string"), "id LONG, customer STRING, cents LONG")
    orders = records.select(order.alias("order")).select("order.*")
    return orders.groupBy("customer").agg(total("cents").alias("cents")).orderBy("customer")


if __name__ == "__main__":
    bills(SparkSession.builder.getOrCreate(), sys.argv[1]).show()
