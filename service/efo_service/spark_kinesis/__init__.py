"""The PySpark data source that reads Kinesis without a service: format("kinesis")."""
