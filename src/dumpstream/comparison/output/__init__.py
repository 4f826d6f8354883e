"""The rows of a comparison in the formats that other programs read."""
