"""One run: prompts read and answered under several methods at once."""
