"""A small PromQL: enough to ask whether an alerting rule would fire, by the letter of its manual.

    fires('increase(sumus_refusals_total[15m]) > 0', scrapes, for_seconds=0.0)

Selectors with = and =~, numbers, time(), increase() and delta() over a range, + - * /, comparisons,
vectors matched one to one on all labels but the name. Anything else is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:e[+-]?\d+)?)|(?P<name>[a-zA-Z_:][\w:]*)|(?P<op>==|!=|>=|<=|[-+*/<>(){},\[\]]|=~|=)"
    r'|(?P<text>"(?:[^"\\]|\\.)*"))'
)
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
Count = Callable[[float, float], float]
Compare = Callable[[float, float], bool]
COMPARE: dict[str, Compare] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
}
COUNT: dict[str, Count] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else float("nan"),
}


@dataclass(frozen=True)
class Scrape:
    """What was read at a moment."""

    time: float
    samples: dict[str, Vector]

    @classmethod
    def of(cls, time: float, text: str) -> Scrape:
        found: dict[str, Vector] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        return cls(time, found)


def names_in(expression: str) -> set[str]:
    """The metrics that an expression reads."""
    functions = {"increase", "delta", "time"}
    return {
        match["name"]
        for match in TOKEN.finditer(re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", expression))
        if match["name"] and match["name"] not in functions
    }


def fires(expression: str, scrapes: Sequence[Scrape], for_seconds: float = 0.0) -> bool:
    """Whether a rule fires at the last scrape: its expression had a result at every scrape of the
    time before, and that time is covered.
    """
    since = None
    for place in range(len(scrapes)):
        if evaluate(expression, scrapes[: place + 1]):
            since = scrapes[place].time if since is None else since
        else:
            since = None
    return since is not None and scrapes[-1].time - since >= for_seconds


def evaluate(expression: str, scrapes: Sequence[Scrape]) -> Vector | float:
    """The value at the last scrape."""
    parser = _Parser(expression, scrapes)
    value = parser.comparison()
    assert parser.peek() is None, f"more than is understood: {expression}"
    return value


class _Parser:
    def __init__(self, expression: str, scrapes: Sequence[Scrape]) -> None:
        self.tokens, at = [], 0
        while at < len(expression.rstrip()):
            match = TOKEN.match(expression, at)
            assert match, f"not understood: {expression[at:]}"
            self.tokens.append(match)
            at = match.end()
        self.place, self.scrapes = 0, scrapes

    def peek(self) -> str | None:
        return self.tokens[self.place][0].strip() if self.place < len(self.tokens) else None

    def take(self, *expected: str) -> str:
        token = self.peek()
        assert token is not None
        assert not expected or token in expected, f"{token} instead of {expected}"
        self.place += 1
        return token

    def comparison(self) -> Vector | float:
        left = self.sum()
        while self.peek() in COMPARE:
            compare = COMPARE[self.take()]
            right = self.sum()
            left = {
                labels: value
                for labels, value, other in _matched(left, right)
                if compare(value, other)
            }
        return left

    def sum(self) -> Vector | float:
        return self._chain(self.product, "+-")

    def product(self) -> Vector | float:
        return self._chain(self.atom, "*/")

    def _chain(self, part: Callable[[], Vector | float], operators: str) -> Vector | float:
        left = part()
        while (self.peek() or "()") in operators:
            count = COUNT[self.take()]
            right = part()
            if isinstance(left, float) and isinstance(right, float):
                left = count(left, right)
            else:
                left = {labels: count(a, b) for labels, a, b in _matched(left, right)}
        return left

    def atom(self) -> Vector | float:
        token = self.take()
        if token == "(":
            value = self.comparison()
            self.take(")")
            return value
        if token[0].isdigit():
            return float(token)
        if token == "time":
            self.take("(")
            self.take(")")
            return self.scrapes[-1].time
        if token in ("increase", "delta"):
            self.take("(")
            name, chosen = self.take(), self.matchers()
            self.take("[")
            size = float(self.take())
            seconds = size * SECONDS[self.take()]
            self.take("]")
            self.take(")")
            return self._change(name, chosen, seconds, counter=token == "increase")
        chosen = self.matchers()
        return _selected(self.scrapes[-1].samples.get(token, {}), chosen)

    def matchers(self) -> list[tuple[str, str, str]]:
        found = []
        if self.peek() == "{":
            self.take("{")
            while self.peek() != "}":
                label, operator, text = self.take(), self.take("=", "=~"), self.take()
                found.append((label, operator, text.strip('"')))
                if self.peek() == ",":
                    self.take(",")
            self.take("}")
        return found

    def _change(
        self, name: str, chosen: list[tuple[str, str, str]], seconds: float, *, counter: bool
    ) -> Vector:
        """Last minus first within the range; a counter that fell began anew at zero."""
        now = self.scrapes[-1].time
        within = [each for each in self.scrapes if each.time > now - seconds]
        series: dict[Labels, list[float]] = {}
        for scrape in within:
            for labels, value in _selected(scrape.samples.get(name, {}), chosen).items():
                series.setdefault(labels, []).append(value)
        changes = {}
        for labels, values in series.items():
            if len(values) < 2:
                continue
            steps = [later - earlier for earlier, later in pairwise(values)]
            resets = zip(values[1:], steps, strict=True)
            fallen = [later if counter and step < 0 else step for later, step in resets]
            changes[labels] = sum(fallen)
        return changes


def _selected(vector: Vector, chosen: list[tuple[str, str, str]]) -> Vector:
    def fits(labels: Labels) -> bool:
        known = dict(labels)
        return all(
            known.get(label, "") == text
            if operator == "="
            else re.fullmatch(text, known.get(label, "")) is not None
            for label, operator, text in chosen
        )

    return {labels: value for labels, value in vector.items() if fits(labels)}


def _matched(left: Vector | float, right: Vector | float) -> list[tuple[Labels, float, float]]:
    if isinstance(left, float) and isinstance(right, float):
        raise AssertionError("a comparison of two numbers is no alert")
    if isinstance(left, float):
        assert isinstance(right, dict)
        return [(labels, left, value) for labels, value in right.items()]
    if isinstance(right, float):
        return [(labels, value, right) for labels, value in left.items()]
    return [(labels, value, right[labels]) for labels, value in left.items() if labels in right]
