"""aiohttp servers: the replay origin and the control API."""
