"""What a capture leaves in a directory: manifest, journal, and the files that sinks stored."""
