"""The fake's HTTP server: HTTP/1.1 and HTTP/2, request encodings, validation, signatures and dispatch."""
