"""The engine inside other libraries."""

from pathlib import Path

CUSTOM_GENERATE = str(Path(__file__).parent)
"""Folder for the argument `custom_generate` of transformers' `generate`, see custom_generate/generate.py."""
