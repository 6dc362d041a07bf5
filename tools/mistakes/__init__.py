"""Mistakes that people make, each with what efo says of it: docs/mistakes.md, made by making them."""
