"""The operators of a graph, in the file that ``--ops`` names."""

from pathlib import Path

from dumpstream._errors import DumpstreamError
from dumpstream.config import Operator, read_operators


def operators_in(path: Path) -> tuple[Operator, ...]:
    """Return the operators in the file that ``--ops`` names.

    Raises:
        DumpstreamError: it cannot be read, or is not a list of operators.
    """
    try:
        return read_operators(path.read_bytes())
    except OSError as exc:
        raise DumpstreamError(f"{path} cannot be read: {exc.strerror}; give --ops a JSON file") from exc
    except DumpstreamError as exc:
        example = '[{"name": "conv1", "type": "Conv2D", "model": "m"}]'
        raise DumpstreamError(f"{path} is {exc}; write for example {example}") from exc
