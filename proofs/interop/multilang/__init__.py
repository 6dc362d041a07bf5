"""Clients of KCL's multi-language protocol, unchanged, on `efo kcl` and beside the Java daemon."""
