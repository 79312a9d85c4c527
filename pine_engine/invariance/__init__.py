"""The proof: every order of the documents tried and compared bit by bit, and certified."""
