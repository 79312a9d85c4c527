"""Models behind an address: prompts as text, and requests to servers with the OpenAI API."""

ENDPOINT = "endpoint"
"""Device of a model that a server computes, in the settings of a run."""

NO_INTERNALS = "The endpoint returns texts, and no internals such as attention, positions and logits."
