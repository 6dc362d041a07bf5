"""Reading shards by GetRecords, in place of a subscription."""
