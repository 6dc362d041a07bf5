"""Who may see the page and act on it, and how large and slow a request may be."""
