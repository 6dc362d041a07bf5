"""What the fake remembers: streams, shards, records, consumers, subscriptions. No I/O."""
