"""What is read to learn: the lesson, the paper's running example, the keys."""
