"""Work that takes long: who asks and listens, the queue, the loaded models, Stop, limits, the log."""
