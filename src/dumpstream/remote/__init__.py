"""A capture in an object store: its destination, lock, journal, and what waits on the local disk for it."""
