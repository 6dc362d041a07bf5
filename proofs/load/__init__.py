"""A fake Kinesis under load, for benchmarks of consumers: events are generated, not stored."""
