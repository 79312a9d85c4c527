"""The answers side by side."""
