"""The PySpark data source for the embedded log."""
