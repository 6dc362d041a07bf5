"""From Kinesis into tables of Delta and of Iceberg on an object store, while relays and Spark are killed."""
