"""How --help is set: paragraphs and examples as they are written, unless the terminal is narrower."""

import argparse
import re
from collections.abc import Iterator
from itertools import groupby

from dumpstream.cli.screen.layout import wrap_words

_DEEPER = " " * 4
_GAP = 2
#: How what an example does begins, if the example is too long to have it beside it.
_BELOW = " " * 20


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Sets descriptions and examples without breaking words."""

    def add_argument(self, action: argparse.Action) -> None:
        """Take *action* into account; commands are indented, for which argparse leaves no space."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no public name
            self._action_max_length += self._indent_increment

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = groupby(text.splitlines(), key=lambda line: bool(line) and not line.startswith(" "))
        lines = (line for is_text, block in blocks for line in _set(is_text, [*block], width - len(indent)))
        return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def _set(is_text: bool, block: list[str], width: int) -> Iterator[str]:  # noqa: FBT001 - as groupby has it
    """Yield the lines of a paragraph, or of examples, in *width*."""
    if all(len(line) <= width for line in block):
        yield from block
    elif is_text:
        yield from wrap_words(" ".join(block), width)
    else:
        yield from _set_examples(_examples(block), width)


def _examples(block: list[str]) -> list[list[str]]:
    """Return the examples of *block*, each with what it does, if that is said beside it or below."""
    examples: list[list[str]] = []
    for line in block:
        if examples and line.startswith(_BELOW):
            examples[-1].append(line.lstrip())
        else:
            examples.append(re.split(r"(?<=\S) {2,}", line))
    return examples


def _set_examples(examples: list[list[str]], width: int) -> Iterator[str]:
    """Yield examples, each with what it does beside it, or below it if that does not fit."""
    explained = [it for it in examples if len(it) > 1]
    column = max((len(example) for example, *_ in explained), default=0) + _GAP
    is_beside = all(column + len(text) <= width for _, text in explained)
    for example, *texts in examples:
        margin = example[: len(example) - len(example.lstrip(" "))] + _DEEPER
        if is_beside and texts:
            yield f"{example:<{column}}{texts[0]}"
        else:
            yield from wrap_words(example, width, indent=margin + _DEEPER)
            for text in texts:
                yield from wrap_words(margin + text, width, indent=margin)
