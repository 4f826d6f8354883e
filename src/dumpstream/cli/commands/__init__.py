"""One module per command: `add_arguments`, `run`, and a docstring that is its help."""
