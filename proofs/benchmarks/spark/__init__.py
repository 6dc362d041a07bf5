"""What Spark costs with the log, beside Parquet and Kafka."""
