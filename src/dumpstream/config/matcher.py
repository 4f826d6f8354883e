"""Matcher: whether a configuration dumps an operator, and why; by the source."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from dumpstream._errors import DumpstreamError
from dumpstream.config.model import DumpSettings, Mode, NameRange, Selection
from dumpstream.config.problem import json_path
from dumpstream.config.steps import parse_steps

_DATA: Final = "Data"
_COLLECTIVE: Final = "Hcom"
_ALL_MODELS: Final = ""


class Operator(BaseModel):
    """An operator of the graph; a field that is left out is unknown, or stands for every value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  #: after conversion and fusion
    type: str = ""
    model: str = ""
    level: Literal["op", "kernel"] | None = None
    step: int | None = None
    io: Literal["input", "output"] | None = None
    index: int | None = None  #: of the input or output
    order: int | None = None  #: in the graph
    original_names: tuple[str, ...] = ()  #: before conversion
    feeds: tuple[str, ...] = ()  #: the operators that take its outputs
    static: bool = True  #: part of a static graph
    single: bool = False  #: a single-operator call, not part of a model
    ai_core: bool = True
    faulty: bool | None = None  #: whether it overflows or fails, as the mode asks


class Match(NamedTuple):
    """The answer, and why; None if it depends on something unknown."""

    dumped: bool | None
    reason: str


class Matcher:
    """Answers for one configuration and one graph.

    Ranges need the order of the graph, and data operators their consumers; without them, answers are None.
    """

    def __init__(self, settings: DumpSettings, graph: Iterable[Operator] = ()) -> None:
        self._settings = settings
        self._steps = parse_steps(settings.dump_step)[0]
        self._graph = {(op.model, op.name): op for op in graph if not op.single}
        # A later item for the same model replaces an earlier one, except that blacklists add up.
        self._selections: dict[str, Selection] = {item.model_name: item for item in settings.dump_list}
        self._ranges = {
            item.model_name: item.opname_range for item in settings.dump_list if item.opname_range
        }

    def match(self, operator: Operator) -> Match:
        """Return whether *operator* is dumped."""
        modes = self._settings.modes
        if not modes:
            return Match(False, "nothing is switched on")
        if Mode.EXCEPTION in modes:
            return _if_faulty(operator, "fails", "; the file goes to disk, past the callback")
        if Mode.OVERFLOW in modes:
            return self._overflowing(operator)
        if Mode.WATCH in modes:
            return self._watched(operator)
        return self._excluded(operator) or self._in_steps(operator, self._selected(operator, modes))

    def triggers(self, operator: Operator) -> bool:
        """Return whether the outputs of the watched operators are dumped after *operator*."""
        if Mode.WATCH not in self._settings.modes or not self._settings.dump_list or not operator.static:
            return False
        item = self._settings.dump_list[-1]
        if operator.name in item.watcher_nodes:
            return True
        return not operator.type.startswith(_COLLECTIVE) and (not item.layer or _named(operator, item.layer))

    def count_watch_dumps(self) -> int:
        """Return how many dumps of watched operators a step of the graph makes, if it is a step to dump."""
        watched, after = Counter[str](), Counter[str]()
        for operator in self._graph.values():
            asked = operator.model_copy(update={"step": None, "io": "output"})
            watched[operator.model] += self._watched(asked).dumped is not False
            after[operator.model] += self.triggers(operator)
        return sum(count * after[model] for model, count in watched.items())

    def _overflowing(self, operator: Operator) -> Match:
        if self._settings.dump_list:
            return Match(False, "beside dump_debug on, dump_list makes the graph engine dump nothing")
        if not operator.ai_core:
            return Match(False, "only operators on the AI Core are checked for overflows")
        return _if_faulty(operator, "overflows")

    def _watched(self, operator: Operator) -> Match:
        if operator.single or not operator.static:
            return Match(False, "only operators of static graphs are watched")
        if not self._settings.dump_list:
            return Match(False, "no operator is watched")
        item = self._settings.dump_list[-1]
        if operator.name not in item.watcher_nodes:
            if set(operator.original_names) & set(item.watcher_nodes):
                return Match(False, "watcher_nodes has an original name; only the name after fusion counts")
            return Match(False, "it is not among watcher_nodes")
        if operator.io == "input":
            return Match(False, "only outputs are watched")
        after = ", ".join(item.layer) if item.layer else "every operator"
        return self._in_steps(operator, Match(True, f"its outputs are dumped after it and after {after}"))

    def _excluded(self, operator: Operator) -> Match | None:
        """Return why level or direction exclude *operator*; None if they do not."""
        settings = self._settings
        if operator.level is not None and settings.dump_level not in ("all", operator.level):
            return Match(False, f"dump_level is {settings.dump_level}")
        if operator.io is not None and settings.dump_mode not in ("all", operator.io):
            return Match(False, f"dump_mode is {settings.dump_mode}")
        return None

    def _in_steps(self, operator: Operator, found: Match) -> Match:
        """Return *found* as ``dump_step`` narrows it; an operator that is not selected stays so."""
        steps = self._settings.dump_step
        if not steps or found.dumped is False:
            return found
        if operator.single:
            return Match(False, "with dump_step, calls without a step are not dumped")
        if operator.step is None:
            return Match(None, f"{found.reason}, only in the steps {steps}")
        return found if operator.step in self._steps else Match(False, f"dump_step is {steps}")

    def _selected(self, operator: Operator, modes: tuple[Mode, ...]) -> Match:
        if operator.single:
            on = Mode.OP in modes
            return Match(on, f"dump_op_switch is {'on' if on else 'off'}")
        found = self._chosen(operator)
        if found.dumped is False and operator.type == _DATA:
            fed = [self._fed(operator, name) for name in operator.feeds]
            found = next((match for match in fed if match.dumped), found)
        return found if found.dumped is False else self._blacklisted(operator, found)

    def _fed(self, operator: Operator, name: str) -> Match:
        consumer = self._graph.get((operator.model, name), Operator(name=name, model=operator.model))
        return Match(self._chosen(consumer).dumped, f"it feeds {name!r}, which is dumped")

    def _chosen(self, operator: Operator) -> Match:
        """Return whether ``dump_list`` selects *operator*, before blacklists."""
        item = self._selections.get(_ALL_MODELS, self._selections.get(operator.model))
        if item is None and not self._settings.dump_list:
            return Match(False, "dump_list is empty")
        if item is None:
            return Match(False, f"no item of dump_list is for model {operator.model!r}")
        ranges = self._ranges.get(operator.model, ())
        whose = f"model {item.model_name!r}" if item.model_name else "all models"
        if not item.layer and (not item.model_name or not ranges):
            return Match(True, f"dump_list takes all operators of {whose}")
        if operator.type != _DATA and _named(operator, item.layer):
            return Match(True, f"layer names it, for {whose}")
        inside = [self._inside(operator, ends) for ends in ranges]
        unnamed = f"layer does not name it, for {whose}"
        outside = Match(False, unnamed if item.layer or not ranges else "it is not in opname_range")
        undecided = next((match for match in inside if match.dumped is None), outside)
        return next((match for match in inside if match.dumped), undecided)

    def _inside(self, operator: Operator, ends: NameRange) -> Match:
        """Return whether *operator* lies between *ends*, both included."""
        span = f"{ends.begin!r} to {ends.end!r}"
        begin, end = (self._graph.get((operator.model, name)) for name in (ends.begin, ends.end))
        if (begin and begin.type == _DATA) or (end and end.type == _DATA):
            return Match(False, f"the range {span} has a data operator at an end")
        if operator.type == _DATA:
            return Match(False, "a data operator is in no range itself")
        if operator.name in (ends.begin, ends.end):
            return Match(True, f"it is an end of the range {span}")
        first, place, last = (None if op is None else op.order for op in (begin, operator, end))
        if first is None or place is None or last is None:
            return Match(None, f"the order of the graph decides whether it is in the range {span}")
        inside = first <= place <= last
        return Match(inside, f"the range {span} {'has' if inside else 'has not'} it")

    def _blacklisted(self, operator: Operator, found: Match) -> Match:
        """Return *found* without what the blacklists exclude."""
        left_out = {
            pos
            for item in self._settings.dump_list
            if item.model_name in (_ALL_MODELS, operator.model)
            for entries, name in (
                (item.optype_blacklist, operator.type),
                (item.opname_blacklist, operator.name),
            )
            for entry in entries
            if name and entry.name == name
            for pos in entry.pos
        }
        if not left_out:
            return found
        if operator.io is not None and operator.index is not None:
            asked = f"{operator.io}{operator.index}"
            return Match(False, f"{asked} is on a blacklist") if asked in left_out else found
        return found._replace(reason=f"{found.reason}, without {', '.join(sorted(left_out))}")


def read_operators(data: bytes) -> tuple[Operator, ...]:
    """Return the operators of a JSON array; those without an ``order`` get their place in it.

    Raises:
        DumpstreamError: *data* is not such an array; the message says what is wrong and where.
    """
    try:
        operators = _OPERATORS.validate_json(data)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        raise DumpstreamError(f"not a list of operators: {json_path(first['loc'])}: {first['msg']}") from None
    return tuple(
        op if op.order is not None else op.model_copy(update={"order": place})
        for place, op in enumerate(operators)
    )


_OPERATORS: Final = TypeAdapter(list[Operator])


def _if_faulty(operator: Operator, fault: str, note: str = "") -> Match:
    if operator.faulty is None:
        return Match(None, f"only if it {fault}{note}")
    return Match(True, f"it {fault}{note}") if operator.faulty else Match(False, f"it would be if it {fault}")


def _named(operator: Operator, names: Sequence[str]) -> bool:
    return operator.name in names or any(name in names for name in operator.original_names)
