"""Whole fleets in virtual time, within AWS's limits: `make scale`."""
