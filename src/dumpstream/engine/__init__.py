"""Analyses that are cut into tasks: for several machines, and for one."""
