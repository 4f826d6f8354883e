"""A run diagnosed: where its first bad value was made, how it spread, and what is not known."""
