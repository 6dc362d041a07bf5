"""The PySpark data source over the embedded log."""
