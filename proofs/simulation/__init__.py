"""Whole consumers on the fake, under virtual time, with faults: each seed is one simulation world."""
