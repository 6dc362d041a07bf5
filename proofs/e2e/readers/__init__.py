"""The log without Spark's data source: the programs of docs/readers.md, while the log is written and compacted."""
