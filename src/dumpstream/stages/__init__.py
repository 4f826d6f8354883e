"""What `reassemble` and `pipeline` are made of."""
