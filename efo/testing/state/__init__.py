"""The fake's state: streams, shards, records, fan-out consumers and subscriptions. No I/O."""
