"""Hands the data source to Spark: it looks for modules of such names, so format("efo") needs no registration."""

from service.spark.source import EfoDataSource as DefaultSource

__all__ = ("DefaultSource",)
