"""From Kinesis into Spark's Parquet files by format("kinesis"), while the driver is killed."""
