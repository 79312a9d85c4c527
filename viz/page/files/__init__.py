"""Files of users, parsed in a subprocess within limits."""
