"""What `reassemble`, `pipeline` and `capture` are made of, and their options and figures."""
