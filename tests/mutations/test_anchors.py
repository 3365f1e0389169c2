"""An anchor finds its definition wherever it lies, and its fragment however it is written."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mutations.anchors import AnchorError, SourceTree

SOURCE = """
LIMIT = 2 * 3


class Law:
    scale: float = 1.0

    def draw(self, rng):
        if self.scale > LIMIT:
            raise ValueError("too wide")
        return (self.scale * rng()) / 2

    @property
    def name(self):
        return f"law-{self.scale}"
"""
WRAPPED = """
LIMIT = (
    2  # per silo
    * 3
)


class Law:
    scale: float = (1.0)

    def draw(
        self,
        rng,
    ):
        if (
            self.scale
            > LIMIT
        ):
            raise ValueError(
                'too '
                'wide',
            )
        return (
            self.scale * rng()
        ) / 2

    @property
    def name(self):
        return (
            f'law-{self.scale}'
        )
"""
ANCHORS = [
    ("LIMIT", "2 * 3", "2 + 3"),
    ("LIMIT", "LIMIT = 2", "LIMIT = 4"),
    ("Law.scale", "1.0", "2.0"),
    ("Law.draw", "if self.scale > LIMIT:", "if False:"),
    ("Law.draw", "self.scale > LIMIT", "True"),
    ("Law.draw", 'raise ValueError("too wide")', "pass"),
    ("Law.draw", "self.scale * rng()", "self.scale + rng()"),
    ("Law.draw", "return (self.scale * rng()) / 2", "x = rng()\nif x:\n    return x"),
    ("Law.name", "@property", "@staticmethod"),
    ("Law.name", 'return f"law-{self.scale}"', "return 0"),
    ("Law", "(self.scale * rng()) / 2", "rng()"),
    ("Law", "self.scale * rng() / 2", "rng()"),
    ("Law", "rng() / 2", "rng()"),
]


def tree_of(folder: Path, **modules: str) -> SourceTree:
    for name, text in modules.items():
        path = folder / "src" / Path(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return SourceTree(folder)


@pytest.mark.parametrize(("where", "old", "new"), ANCHORS)
def test_broken_lines_quotes_and_parentheses_do_not_matter(
    where: str, old: str, new: str, tmp_path: Path
) -> None:
    _, mutated = tree_of(tmp_path / "one", law=SOURCE).mutated(where, old, new)
    _, wrapped = tree_of(tmp_path / "other", law=WRAPPED).mutated(where, old, new)
    assert ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(wrapped))
    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(SOURCE))


def test_only_the_statement_that_is_touched_changes(tmp_path: Path) -> None:
    _, mutated = tree_of(tmp_path, law=WRAPPED).mutated("Law.scale", "1.0", "2.0")
    assert mutated == WRAPPED.replace("(1.0)", "(2.0)")


def test_parentheses_that_hold_the_replacement_together_stay(tmp_path: Path) -> None:
    source = tree_of(tmp_path, law=SOURCE)
    _, mutated = source.mutated("Law.draw", "self.scale * rng()", "self.scale + rng()")
    assert "return (self.scale + rng()) / 2\n" in mutated


def test_lines_of_a_replacement_are_indented_as_the_statement(tmp_path: Path) -> None:
    new = """
    if rng():
        return 0
    return 1
    """
    source = tree_of(tmp_path, law=SOURCE)
    _, mutated = source.mutated("Law.draw", "return (self.scale * rng()) / 2", new)
    assert "        if rng():\n            return 0\n        return 1\n\n" in mutated


def test_a_definition_may_move(tmp_path: Path) -> None:
    before = tree_of(tmp_path / "before", mechanism__law=SOURCE)
    after = tree_of(tmp_path / "after", noise__laws__gaussian=SOURCE, other="x = 1\n")
    for where in ("Law.draw", "law:Law.draw", "mechanism.law:Law.draw"):
        assert before.definition(where).file == Path("src/mechanism/law.py")
        assert after.definition(where).file == Path("src/noise/laws/gaussian.py")


def test_a_name_of_two_modules_needs_the_end_of_one(tmp_path: Path) -> None:
    source = tree_of(tmp_path, noise__law=SOURCE, audit__outlaw=SOURCE)
    with pytest.raises(AnchorError, match=r"defined in audit\.outlaw, noise\.law"):
        source.definition("Law.draw")
    assert source.definition("law:Law.draw").file == Path("src/noise/law.py")
    assert source.definition("audit.outlaw:Law.draw").file == Path("src/audit/outlaw.py")
    with pytest.raises(AnchorError, match="defined in no module"):
        source.definition("Law.drawn")


def test_a_modules_own_level_is_outside_its_definitions(tmp_path: Path) -> None:
    source = tree_of(tmp_path, noise__law=SOURCE)
    assert "LIMIT = 5\n" in source.mutated("law:", "2 * 3", "5")[1]
    with pytest.raises(AnchorError, match="occurs 0 times"):
        source.mutated("law:", "rng()", "0")


def test_getter_and_setter_are_one_definition(tmp_path: Path) -> None:
    text = (
        "class A:\n    @property\n    def x(self): return 1\n"
        "    @x.setter\n    def x(self, v): v = 2\n"
    )
    source = tree_of(tmp_path, a=text)
    assert source.mutated("A.x", "v = 2", "v = 3")[1] == text.replace("v = 2", "v = 3")


@pytest.mark.parametrize(
    ("old", "why"),
    [
        ("self.scale", "occurs 2 times"),
        ("self.size", "occurs 0 times"),
        ("rng()) / 2", "no fragment"),
        (") / 2 + (", "no fragment"),
        ("(self.scale", "no fragment"),
        ("", "empty"),
    ],
)
def test_a_fragment_must_be_whole_and_occur_once(old: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(AnchorError, match=why):
        tree_of(tmp_path, law=SOURCE).mutated("Law.draw", old, "0")


def test_parentheses_that_change_the_meaning_count(tmp_path: Path) -> None:
    source = tree_of(tmp_path, a="def f(a, b, c):\n    return (a + b) * c\n")
    with pytest.raises(AnchorError, match="occurs 0 times"):
        source.mutated("f", "a + b * c", "0")


def test_a_test_file_may_move_and_two_of_a_name_are_told_apart(tmp_path: Path) -> None:
    for name in ("a/test_x.py", "b/test_x.py", "b/test_y.py"):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).touch()
    source = SourceTree(tmp_path)
    for name in ("test_y.py", "b/test_y.py", "tests/b/test_y.py", "tests/a/test_y.py"):
        assert source.test(f"{name}::test_one") == "tests/b/test_y.py::test_one"
    assert source.test("a/test_x.py") == "tests/a/test_x.py"
    with pytest.raises(AnchorError, match="names 2"):
        source.test("test_x.py")
    with pytest.raises(AnchorError, match="names 0"):
        source.test("test_z.py")
