"""The public calls, for scripts and assistants: what they are called with, and what they compute."""
