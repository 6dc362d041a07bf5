"""`make edges`: efo where its users meet it: credentials, clocks, proxies, recreated streams, foreign records."""
