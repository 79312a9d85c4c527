"""Internals of one run: the selection, and each figure from its trace."""
