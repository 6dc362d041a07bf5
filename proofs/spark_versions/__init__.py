"""format("efo"), format("kinesis") and the pipeline on each version of Spark that has Python sources."""
