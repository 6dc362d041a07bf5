"""Provides format("efo") without registration: Spark imports modules named pyspark_* and looks for DefaultSource."""

from efo_service.spark.source.data_source import EfoDataSource as DefaultSource

__all__ = ("DefaultSource",)
