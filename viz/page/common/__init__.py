"""What all parts of the page stand on: the host's settings, failures as sentences, room, addresses."""
