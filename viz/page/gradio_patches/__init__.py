"""Patches of gradio."""
