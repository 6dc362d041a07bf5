"""KCL and efo as workers of one application: one stream, one lease table and one fan-out consumer."""
