"""Middleware, startup and shutdown of the server."""
