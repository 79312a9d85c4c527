"""Evaluation of a small dataset: request, computation, tables and files."""
