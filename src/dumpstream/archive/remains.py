"""Remains: what the deletion of a capture left in the capture's directories."""

_NAMED = 3
_LONGEST = 200  # characters of a path


class Remains:
    """Files that a deleted capture had not made, counted; the first few by name."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, path: str) -> None:
        """Count the file *path*."""
        self.count += 1
        if len(self.first) < _NAMED:
            self.first.append(path if len(path) <= _LONGEST else f"{path[:_LONGEST]}...")

    def __str__(self) -> str:
        files = "1 file is" if self.count == 1 else f"{self.count} files are"
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return (
            f"{files} left that the deleted capture had not made, or not recorded: "
            f"{', '.join(self.first)}{more}; delete them if they are not needed"
        )
