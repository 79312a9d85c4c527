"""Certificates of order invariance, their reproduction, the self-test, and the position sweep."""
