"""Visitors' files: read in a process of their own, within limits."""
