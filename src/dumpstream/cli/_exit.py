"""Exit codes beyond the usual: 0 done and everything whole, 1 failed, 2 wrong usage."""

from __future__ import annotations

NOT_WHOLE = 3  #: done, but not everything is whole
BY_SIGNAL = 128  #: and the number of the signal, as shells have it
