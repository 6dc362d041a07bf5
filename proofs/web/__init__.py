"""The page of a real service in a real browser: Debian's Chromium, driven by Playwright."""
