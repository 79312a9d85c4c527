"""Runs: prefill and decoding of prompts under several methods at once."""
