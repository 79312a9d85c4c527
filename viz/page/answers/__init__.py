"""Tab "See it": the form and the answers of all methods, running, finished or recorded."""
