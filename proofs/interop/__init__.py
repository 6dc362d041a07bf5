"""Interoperability: third-party clients on efo's fake, efo on third-party servers, and efo together with KCL."""
