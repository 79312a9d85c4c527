"""Server with the interface of the OpenAI API, and the queue that it shares with the page."""
