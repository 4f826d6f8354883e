"""Drawing on the terminal: colours, progress that is rewritten in place, and tables that fit."""
