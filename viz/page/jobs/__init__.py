"""Work that takes long: its queue, the loaded models, progress, Stop, and who still listens."""
