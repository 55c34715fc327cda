"""One training: the loss, the optimizer steps, warm starts."""
