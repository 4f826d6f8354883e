"""Run the command line as ``python -m dumpstream``."""

from __future__ import annotations

import sys

from dumpstream.cli import main

sys.exit(main())
