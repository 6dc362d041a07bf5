"""What the surfaces for asyncio and for synchronous code share: a trio thread, and the ways into it and out of it."""
