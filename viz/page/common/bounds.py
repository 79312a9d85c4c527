"""Upper limits of the page; a host can set lower ones."""

MAX_DOCUMENTS = 20  # document cards
MAX_ROWS = 200  # examples of a dataset
MAX_DATA_SET_DOCUMENTS = 10_000
"""Documents in all examples of a dataset; more records would block the server for seconds."""

MAX_UPLOAD_MB = 10  # size of an uploaded file in megabytes; app.py passes it to gradio
