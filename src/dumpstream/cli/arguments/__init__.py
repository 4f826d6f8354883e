"""The help and the flags of the commands: a module for each, which imports nothing slow."""
