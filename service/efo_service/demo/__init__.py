"""`efo demo`: the whole job on this machine, from FakeKinesis to Parquet, with a comparison at the end."""
