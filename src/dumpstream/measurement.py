"""The public path of `measure`."""

from dumpstream.analysis.measurement import measure

__all__ = ["measure"]
