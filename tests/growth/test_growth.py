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


PYTEST = ("-m", "pytest", "-p", "no:cacheprovider")
FILES = tuple(file for _, file, _ in KINDS.values())
NAMES = " or ".join(name for _, _, name in KINDS.values())


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """One of each kind, in one copy: they are independent, and each is tried by its own tests."""
    return grow(tmp_path_factory.mktemp("grown"), *(HERE / kind for kind in KINDS))


@pytest.fixture(scope="module")
def conformance(grown: Grown) -> str:
    """What the conformance tests of the copy say about the new ones, a line a test."""
    return grown.run(*PYTEST, "-vv", "-rN", *FILES, "-k", NAMES).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_it_touches_few_files_and_says_how(kind: str, tmp_path: Path) -> None:
    most, _, _ = KINDS[kind]
    touched = grow(tmp_path, HERE / kind).touched()
    assert 0 < len(touched) <= most, touched
    steps = (HERE / kind / "README.md").read_text(encoding="utf-8")
    for path in touched:
        assert path.removeprefix("sumus/") in steps


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_conformance_tests_find_it_and_pass(kind: str, conformance: str) -> None:
    _, file, name = KINDS[kind]
    lines = [line for line in conformance.splitlines() if line.startswith(f"{file}::")]
    tried = [line for line in lines if name in line]
    assert tried, conformance[-3000:]
    assert all("PASSED" in line for line in tried), conformance[-5000:]


@pytest.mark.long
def test_without_it_there_is_nothing_to_test(grown: Grown) -> None:
    """The control: the copy's source was tested, not this one."""
    done = Grown(ROOT).run(*PYTEST, "-q", "--co", *FILES, "-k", NAMES)
    assert done.returncode == 5, done.stdout[-2000:]  # no test was selected
    assert grown.root != ROOT


@pytest.mark.long
def test_the_copy_obeys_the_architecture(grown: Grown) -> None:
    done = grown.run(*PYTEST, "-q", "-x", "tests/test_architecture.py")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture(scope="module")
def uses(grown: Grown) -> str:
    """What one process of the copy says that goes through the uses of all new ones."""
    done = grown.run(str(HERE / "use_all.py"), *(str(HERE / kind / "use.py") for kind in KINDS))
    return done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_uses_it(kind: str, uses: str) -> None:
    assert f"{HERE / kind / 'use.py'} passed" in uses.splitlines(), uses[-3000:]


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
        grow(tmp_path / "copy", tmp_path)
