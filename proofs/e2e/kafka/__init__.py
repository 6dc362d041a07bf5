"""From Kinesis through a local Kafka broker into Spark's Parquet files, while all of them are killed."""
