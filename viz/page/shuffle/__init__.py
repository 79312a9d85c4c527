"""Shuffle test: the same documents in other orders."""
