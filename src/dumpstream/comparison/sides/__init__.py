"""The sides of a comparison: what there is, described file by file."""
