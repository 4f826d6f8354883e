"""Two runs compared: which tensors belong together, how they differ, and where the difference began."""
