"""PySpark: the data source for the embedded log, and the streaming pipeline."""
