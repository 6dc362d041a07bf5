"""Orders go into a stream, and each customer's bill comes out."""
