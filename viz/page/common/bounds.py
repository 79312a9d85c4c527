"""Upper limits of the page; a host can set lower ones."""

MAX_DOCUMENTS = 20
"""Document cards."""

MAX_ROWS = 200
"""Examples of a dataset."""

MAX_DATA_SET_DOCUMENTS = 10_000
"""Documents in all examples of a dataset; more records would block the server for seconds."""

MAX_UPLOAD_MB = 10
"""Size of an uploaded file in megabytes; app.py passes it to gradio."""
