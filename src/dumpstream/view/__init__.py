"""A page for a run, in the browser: live, afterwards, or as one file."""
