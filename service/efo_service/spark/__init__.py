"""PySpark: the data source over the embedded log, and the streaming pipeline."""
