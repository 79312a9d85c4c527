"""The page's public calls, for scripts and for assistants."""
