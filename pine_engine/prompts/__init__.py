"""A prompt, from the text that somebody enters to the tokens of its parts."""
