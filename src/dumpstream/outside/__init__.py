"""Capture from outside: an agent in each process fills a ring, and a collector reads all of them."""
