"""The documentation: its pages, their links and examples, and the site that `make docs` builds from them."""
