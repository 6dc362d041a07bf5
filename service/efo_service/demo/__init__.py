"""`efo demo`: the whole main job on this machine, from a fake Kinesis to Parquet, compared at the end."""
