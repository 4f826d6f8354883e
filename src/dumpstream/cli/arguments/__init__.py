"""What the commands are told: a module for each has its help and its flags, and imports nothing slow."""
