"""Commands on several machines: their flags, and how their plans are run."""
