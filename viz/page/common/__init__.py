"""What all parts of the page stand on: settings of the host, failures, room, names."""
