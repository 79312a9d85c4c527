"""Parts of all pictures: colors, numbers, tokens, and the frame around each."""
