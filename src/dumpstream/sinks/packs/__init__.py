"""Packs: many small files in one container."""
