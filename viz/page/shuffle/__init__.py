"""The same documents in other orders: which, and what became of the answers."""
