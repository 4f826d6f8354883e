"""What the commands do: a module for each has `run`, which returns the exit code."""
