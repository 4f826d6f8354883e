"""What the command line understands, and what is made from it: completion and the man page."""
