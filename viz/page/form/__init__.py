"""The form: question, documents, examples and their validation."""
