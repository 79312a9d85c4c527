"""The same documents in other orders."""
