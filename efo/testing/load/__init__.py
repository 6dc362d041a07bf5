"""A fake Kinesis under constant load: events are generated, not stored."""
