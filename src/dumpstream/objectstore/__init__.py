"""Talking to one object store. Needs ``dumpstream[objectstore]``."""
