"""KCL's multi-language protocol: processors of any language, each in a child process, on efo's consumer."""
