"""Selection of a model: choices and facts."""
