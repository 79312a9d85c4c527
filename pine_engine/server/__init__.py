"""Server with the interface of the OpenAI API."""
