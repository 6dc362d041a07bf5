"""HTTP/1.1 for the service's port: requests within limits, by h11. There is no HTTP/2 and no WebSocket."""
