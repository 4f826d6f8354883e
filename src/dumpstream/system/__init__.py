"""Safe files, locks, threads and locations. Knows nothing of dumps."""
