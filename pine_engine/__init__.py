"""The engine of PINE Explorer: one model, several inference methods, exact order invariance."""
