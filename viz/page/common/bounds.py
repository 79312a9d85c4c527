"""The most of each thing that the page can hold; a host can allow less."""

MAX_DOCUMENTS = 20
"""Cards of documents."""

MAX_ROWS = 200
"""Rows of a file that are read: the page measures small sets."""

MAX_DATA_SET_DOCUMENTS = 10_000
"""Documents of all rows of a file together: records of more would keep the server busy for seconds."""

MOST_MB = 10
"""Largest file that is taken, in megabytes; app.py tells gradio."""
