"""KCL and efo as workers of one application: the same lease table, the same fan-out consumer, the same stream."""
