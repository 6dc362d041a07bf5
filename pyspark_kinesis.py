"""Provides format("kinesis") without registration: Spark imports pyspark_* modules and looks for DefaultSource.

A program imports it before its first session, so that Spark's workers use the Python of the program.
"""

from efo_service.spark.default_source import default_source

DefaultSource = default_source("kinesis", "efo_service.spark_kinesis.data_source", "KinesisDataSource")

__all__ = ("DefaultSource",)
