"""The signatures of requests, under the name that programs have imported since the fake checks them."""

from efo.testing.sigv4 import Credential

__all__ = ("Credential",)
