"""The runtime's interface: CANN's functions, in an order that the runtime accepts."""

from dumpstream.acl.library import load_acl, load_profiling

__all__ = ["load_acl", "load_profiling"]
