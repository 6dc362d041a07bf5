"""Every form in which a program may be written, crossed with what holds in each."""
