"""What released versions of efo wrote is kept in tests/golden, and each later version must read it: `make compat`."""
