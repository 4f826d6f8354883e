"""Captures and dump files, read back."""
