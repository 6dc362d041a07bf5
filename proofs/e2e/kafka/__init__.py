"""A Kafka broker on this machine, and the whole way from Kinesis through it into Spark."""
