"""AWS, or an endpoint that behaves like it: the control plane through aiobotocore, SigV4, and TLS with ALPN."""
