"""The figures of `make bench`: targets, measurements, results."""
