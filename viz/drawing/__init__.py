"""What all pictures are drawn with: colours, numbers, tokens, and the frame around each."""
