"""The pairs of a comparison: which tensors of the two sides belong together."""
