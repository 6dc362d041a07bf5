"""From Kinesis through the embedded log into Spark's Parquet files, with relays and Spark killed all the time."""
