"""Interoperability: other clients on efo's fake, efo on other servers, efo beside KCL."""
