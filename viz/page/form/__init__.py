"""What is asked: the question, its documents, the examples, and what is wrong with them."""
