"""From Kinesis through the embedded log into Spark's Parquet files, while relays and Spark are killed."""
