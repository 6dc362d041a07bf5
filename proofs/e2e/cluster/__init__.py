"""`format("efo")` on a standalone Spark cluster whose Pythons have no efo, with the log on an object store."""
