"""AWS, or an endpoint that behaves like it: the control plane, credentials, SigV4, and TLS with ALPN."""
