"""Pure rooms: bytes or inputs plus `now` go in, frozen events or actions come out; no I/O, no clock, no log."""
