"""Provides format("efo") without registration: Spark imports modules named pyspark_* and looks for DefaultSource.

A program imports it before its first session, so that Spark's workers use the Python of the program.
"""

from efo_service.spark.default_source import default_source

DefaultSource = default_source("efo", "efo_service.spark.source.data_source", "EfoDataSource")

__all__ = ("DefaultSource",)
