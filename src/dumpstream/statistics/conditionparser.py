"""Text to conditions: ``nan > 0 and (io == 'output' or op_name ~ '*MatMul*')``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn

from dumpstream.statistics.condition import (
    IS_NAN,
    IS_NULL,
    MATCHING,
    ORDERING,
    Comparison,
    Condition,
    Either,
    Every,
    Not,
    comparable,
)
from dumpstream.statistics.table import COLUMNS, Number, unknown_column

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'[^']*'|"[^"]*")
    | (?P<number>[+-]?(?:\d[\d_]*(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w)|[+-]inf(?:inity)?\b)
    | (?P<mistaken>&&|\|\||=>|=<|<>|=~|\.\.|(?:like|in)\b)
    | (?P<word>\w+)
    | (?P<operator>[<>=!]=|!~|[<>=~])
    | (?P<bracket>[()])
    | (?P<other>\S)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
#: What other languages have for it.
_MEANT = {
    "&&": "write and",
    "||": "write or",
    "=>": "write >=",
    "=<": "write <=",
    "<>": "write !=",
    "=~": "write ~ and a pattern with * ? [ ]",
    "like": "write ~ and a pattern with * ? [ ]",
    "in": "write a range as 3 <= iteration <= 7",
    "..": "write a range as 3 <= iteration <= 7",
}
_KEYWORDS = {"and", "or", "not", "is"}
#: How an operator reads from the other side.
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_MOST_BRACKETS = 100
_NUMBERS = "write for example 0, -1.5, 1e-6 or inf"
_EXAMPLE = "write for example nan > 0 or op_name ~ '*MatMul*'"


class ConditionError(ValueError):
    """A text is not a condition; the notes show the place."""

    def __init__(self, problem: str, text: str, start: int, length: int) -> None:
        super().__init__(problem)
        self.add_note(f"  {text}")
        self.add_note(f"  {' ' * start}{'^' * max(length, 1)}")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def keyword(self) -> str | None:
        """The keyword that it is, in lower case."""
        word = self.text.lower()
        return word if self.kind == "word" and word in _KEYWORDS else None


class _Column(NamedTuple):
    name: str


class _Operand(NamedTuple):
    """A column, a number or text, and where it is."""

    value: _Column | Number | str
    token: _Token


def parse_condition(text: str) -> Condition:
    """Return the condition that *text* stands for.

    It consists of ``COLUMN OP VALUE``, ``LOW <= COLUMN <= HIGH``, ``COLUMN is [not] null`` and ``COLUMN is
    [not] nan``, joined by ``and``, ``or``, ``not`` and brackets.

    Raises:
        ConditionError: it is not one; the message says why, and what to write.
    """
    parser = _Parser(text)
    condition = parser.condition()
    parser.expect_end()
    return condition


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text.rstrip()
        self._tokens = [*_tokens(self._text)]
        self._place = 0
        self._brackets = 0

    def condition(self) -> Condition:
        """Read what ``or`` joins."""
        parts = [self._conjunction()]
        while self._take_keyword("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else Either(parts)

    def expect_end(self) -> None:
        """Refuse what is behind the condition."""
        token = self._next
        if token.kind != "end":
            likely = "" if token.kind in {"text", "number"} else get_close_matches(token.text, ["and", "or"])
            hint = f"; did you mean {likely[0]}?" if likely else "; join conditions by and, or"
            self._refuse(f"{token.text!r} does not belong there{hint}", token)

    def _conjunction(self) -> Condition:
        parts = [self._negation()]
        while self._take_keyword("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else Every(parts)

    def _negation(self) -> Condition:
        negated = False
        while self._take_keyword("not"):
            negated = not negated
        condition = self._bracketed() if self._next.text == "(" else self._comparison()
        return Not(condition) if negated else condition

    def _bracketed(self) -> Condition:
        opening = self._take()
        self._brackets += 1
        if self._brackets > _MOST_BRACKETS:
            self._refuse("there are too many brackets inside each other", opening)
        condition = self.condition()
        if self._next.text != ")":
            if self._next.kind != "end":
                self.expect_end()
            self._refuse("this bracket is not closed; add )", opening)
        self._take()
        self._brackets -= 1
        return condition

    def _comparison(self) -> Condition:
        left = self._operand("a column")
        if self._next.keyword == "is":
            return self._state(left)
        parts: list[Condition] = []
        while not parts or self._next.kind == "operator":
            sign = self._take()
            if sign.kind != "operator":
                self._refuse_no_operator(left, sign)
            right = self._operand("a number, or text in quotes,", beside=left)
            parts.append(self._compare(left, sign, right))
            left = right
        return parts[0] if len(parts) == 1 else Every(parts)

    def _state(self, left: _Operand) -> Condition:
        """Read ``is [not] null`` or ``is [not] nan``."""
        self._take()
        column = self._column(left)
        negated = self._take_keyword("not")
        token = self._take()
        state = {"null": IS_NULL, "nan": IS_NAN}.get(token.text.lower())
        if state is None:
            self._refuse("behind is comes null or nan, or not and one of them", token)
        if state == IS_NAN and not COLUMNS[column].numeric:
            self._refuse(f"{column} does not hold numbers, so it cannot be NaN", token)
        comparison = Comparison(column, state)
        return Not(comparison) if negated else comparison

    def _operand(self, wanted: str, beside: _Operand | None = None) -> _Operand:
        token = self._take()
        if token.kind == "text":
            return _Operand(token.text[1:-1], token)
        if token.kind == "number" or (token.kind == "word" and token.text.lower() in {"inf", "infinity"}):
            return _Operand(self._number(token), token)
        if token.kind != "word" or token.keyword:
            found = f"not {token.text!r}" if token.text else "but the condition ends"
            self._refuse(f"{wanted} belongs there, {found}; {_EXAMPLE}", token)
        if beside is not None and isinstance(beside.value, _Column):
            self._refuse_word(beside.value.name, token)
        if token.text not in COLUMNS:
            self._refuse(unknown_column(token.text), token)
        return _Operand(_Column(token.text), token)

    def _compare(self, left: _Operand, sign: _Token, right: _Operand) -> Comparison:
        name = {"=": "=="}.get(sign.text, sign.text)
        if not isinstance(left.value, _Column):
            left, right = right, left
            if name not in _MIRRORED:
                self._refuse(f"the column comes in front of {name}: COLUMN {name} 'PATTERN'", sign)
            name = _MIRRORED[name]
        column = self._column(left)
        value = right.value
        assert not isinstance(value, _Column)  # `_operand` refuses a second one
        if COLUMNS[column].numeric:
            if name not in ORDERING:
                self._refuse(f"{column} holds numbers; compare it by {_words(ORDERING)}", sign)
            if isinstance(value, str):
                self._refuse(f"{column} holds numbers; write the number without quotes", right.token)
            return Comparison(column, name, value)
        if name not in MATCHING:
            self._refuse(f"{column} holds text; compare it by {_words(MATCHING)}", sign)
        if not isinstance(value, str):
            self._refuse(f"{column} holds text; put it in quotes: '{right.token.text}'", right.token)
        return Comparison(column, name, comparable(value))

    def _column(self, operand: _Operand) -> str:
        if not isinstance(operand.value, _Column):
            self._refuse(f"a comparison needs a column; {_EXAMPLE}", operand.token)
        return operand.value.name

    def _number(self, token: _Token) -> Number:
        with suppress(ValueError):
            return int(token.text)
        try:
            return float(token.text)
        except ValueError:
            self._refuse(f"{token.text!r} is not a number; {_NUMBERS}", token)

    def _refuse_no_operator(self, left: _Operand, token: _Token) -> NoReturn:
        column = left.value.name if isinstance(left.value, _Column) else "it"
        kinds = MATCHING if column in COLUMNS and not COLUMNS[column].numeric else ORDERING
        found = f"not {token.text!r}" if token.text else "but the condition ends"
        self._refuse(f"{_words(kinds)} or is belongs behind {left.token.text}, {found}; {_EXAMPLE}", token)

    def _refuse_word(self, column: str, token: _Token) -> NoReturn:
        """Refuse a word where the value of *column* belongs."""
        word = token.text.lower()
        if word in {"null", "none"} or (word == "nan" and COLUMNS[column].numeric):
            state = "nan" if word == "nan" else "null"
            self._refuse(f"nothing equals {token.text}; write {column} is {state}", token)
        if COLUMNS[column].numeric and token.text in COLUMNS:
            self._refuse("a column is compared with a number, not with another column", token)
        if COLUMNS[column].numeric:
            self._refuse(f"{token.text!r} is not a number; {_NUMBERS}", token)
        self._refuse(f"put text in quotes: '{token.text}'", token)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._next
        self._place += token.kind != "end"
        return token

    def _take_keyword(self, keyword: str) -> bool:
        if self._next.keyword != keyword:
            return False
        self._take()
        return True

    def _refuse(self, problem: str, token: _Token) -> NoReturn:
        if token.kind == "mistaken":
            problem = f"{token.text!r} is not known here; {_MEANT[token.text.lower()]}"
        elif token.kind == "other" and token.text in "'\"":
            problem = f"this text has no end; add {token.text}"
        raise ConditionError(problem, self._text, token.start, len(token.text))


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        yield _Token(kind, match[kind], match.start(kind))
    yield _Token("end", "", len(text))


def _words(operators: dict[str, Any]) -> str:
    return ", ".join(operators)
