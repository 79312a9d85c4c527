"""Prompts: from the text of the user to the tokens of each segment."""
