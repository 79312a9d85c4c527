"""Parts of a web server that the page and the OpenAI server share."""
