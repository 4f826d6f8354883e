"""The public path of `begin_file`."""

from dumpstream.statistics.files import begin_file

__all__ = ["begin_file"]
