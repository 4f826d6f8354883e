"""One run of a capture: its request, what is prepared and begun for it, and the session that works."""
