"""Common parts of the page: host settings, error messages, disk quota, addresses."""
