"""Tensors that are spread over several ranks, put together before they are compared."""
