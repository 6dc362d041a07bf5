"""Provides format("kinesis") without registration: Spark imports pyspark_* modules and looks for DefaultSource."""

from efo_service.spark_kinesis.data_source import KinesisDataSource as DefaultSource

__all__ = ("DefaultSource",)
