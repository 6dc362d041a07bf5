"""Whole consumers on a made-up Kinesis, under virtual time, with all that goes wrong: one seed is one world."""
