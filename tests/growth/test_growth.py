"""A new law, data set, … is what CONTRIBUTING says: so many files of src, and the conformance tests
find it by themselves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from growth.growth import ROOT, Grown, grow

HERE = Path(__file__).parent

# kind: most files of src (a new folder is one), its conformance tests, the name of the entry
KINDS = {
    "law": (2, "tests/conformance/test_laws.py", "centred-binomial"),
    "algorithm": (3, "tests/conformance/test_algorithms.py", "accumulated"),
    "task": (2, "tests/conformance/test_tasks.py", "ordinal"),
    "data-set": (1, "tests/conformance/test_data_sets.py", "breast-cancer"),
    "engine": (1, "tests/conformance/test_engines.py", "sqlite"),
}


@pytest.fixture(scope="module", params=KINDS)
def grown(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Grown]:
    kind: str = request.param
    return kind, grow(HERE / kind, tmp_path_factory.mktemp(kind))


def test_it_touches_few_files_and_says_how(grown: tuple[str, Grown]) -> None:
    kind, copy = grown
    most, _, _ = KINDS[kind]
    touched = copy.touched()
    assert 0 < len(touched) <= most, touched
    steps = (HERE / kind / "README.md").read_text(encoding="utf-8")
    for path in touched:
        assert path.removeprefix("sumus/") in steps


def test_the_conformance_tests_find_it_and_pass(grown: tuple[str, Grown]) -> None:
    kind, copy = grown
    _, file, name = KINDS[kind]
    done = copy.tests(file, name)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def test_without_it_there_is_nothing_to_test(grown: tuple[str, Grown]) -> None:
    """The control: the copy's source was tested, not this one."""
    kind, copy = grown
    _, file, name = KINDS[kind]
    done = Grown(ROOT).run("-m", "pytest", "-q", "--co", "-p", "no:cacheprovider", file, "-k", name)
    assert done.returncode == 5, done.stdout[-2000:]  # no test was selected
    assert copy.root != ROOT


def test_the_copy_obeys_the_architecture(grown: tuple[str, Grown]) -> None:
    _, copy = grown
    done = copy.run(
        "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/test_architecture.py"
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_plan_uses_it(grown: tuple[str, Grown]) -> None:
    kind, copy = grown
    done = copy.run(str(HERE / kind / "use.py"))
    assert done.returncode == 0, done.stderr[-2000:]


def test_contributing_says_the_same() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for kind, (most, file, _) in KINDS.items():
        (row,) = [line for line in page.splitlines() if f"(tests/growth/{kind}/README.md)" in line]
        _, _, files, test, _, _ = (cell.strip() for cell in row.split("|"))
        assert (int(files.removesuffix(" folder")), test) == (most, f"`{file}`")


def test_an_edit_that_fits_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "edits.toml").write_text(
        '[[edit]]\nfile = "pyproject.toml"\nfind = "nowhere to be read"\nreplace = ""\n'
    )
    (tmp_path / "copy").mkdir()
    with pytest.raises(ValueError, match="must stand once"):
        grow(tmp_path, tmp_path / "copy")
