"""Hands the data source to Spark: it looks for modules of such names, so format("efo") needs no registration."""

from efo_service.spark.source.data_source import EfoDataSource as DefaultSource

__all__ = ("DefaultSource",)
