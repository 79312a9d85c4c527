"""Seconds and bytes: how fast the engine is on this machine, and where the time goes."""
