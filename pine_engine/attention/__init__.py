"""Attention of one layer by an attention plan, its KV cache, and the recorder of its trace."""
