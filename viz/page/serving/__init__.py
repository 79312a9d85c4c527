"""The doors in front of the page, and its beginning and end."""
