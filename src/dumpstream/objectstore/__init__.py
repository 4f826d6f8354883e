"""Object storage: places in it by URL, and the stores behind them. Needs ``dumpstream[objectstore]``."""

from __future__ import annotations

from dumpstream.objectstore.prefix import Prefix, as_place

__all__ = ["Prefix", "as_place"]
