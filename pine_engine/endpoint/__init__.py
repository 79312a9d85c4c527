"""Models behind an address: prompts as text, and requests to servers with the OpenAI API."""

ENDPOINT = "endpoint"
"""Device of a model that a server computes, in the settings of a run."""
