"""Pure state machines and codecs: bytes or inputs plus `now` go in, frozen events or actions come out.

Nothing here does I/O, reads a clock or writes a log.
"""
