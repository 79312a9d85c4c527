"""From the attention plan to the attention output, layer by layer, and what a trace keeps of it."""
