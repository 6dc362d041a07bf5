"""Several worker processes on one machine: `efo run --workers N`."""
