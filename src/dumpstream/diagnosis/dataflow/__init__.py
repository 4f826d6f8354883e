"""The data flow of a run, rebuilt from its rows: executions, their order, and what each read from which."""
