"""From Kinesis into the log on real object stores, while relays are killed and requests to the store fail."""
