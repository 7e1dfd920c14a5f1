"""What a variant is made of: its digest changes with any of it, and with nothing else."""

import subprocess
from pathlib import Path

import pytest

from bench import worktree as worktree_module
from bench.errors import ComparisonError
from bench.options import Contender
from bench.since import changed_since
from bench.sources import OWN_TREE, source_digest, sources
from bench.worktree import worktree
from cplab.variant import Variant, get_variant

FILES = {
    "variants/__init__.py": "",
    "variants/fast.py": "from cplab.decoder import Decoder\nfrom cplab.variant import variant\n",
    "variants/slow.py": "import cplab.oracle\n",
    "cplab/__init__.py": "",
    "cplab/variant.py": "",
    "cplab/oracle.py": "",
    "cplab/decoder.py": "def late():\n    from cplab.kernels import rows\n",
    "cplab/kernels/__init__.py": "",
    "cplab/kernels/rows.py": "from . import vectors\nfrom .tiles import tile\nTABLE = 'table.npy'\n",
    "cplab/kernels/vectors.py": "",
    "cplab/kernels/tiles.py": "tile = 1\n",
    "cplab/kernels/table.npy": "numbers",
    "cplab/kernels/unused.py": "",
    "bench/timing.py": "",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def names(variant, tree):
    return {path.relative_to(tree).as_posix() for path in sources(tree / "variants" / f"{variant}.py", tree)}


def test_imports_are_followed_into_functions_packages_and_dots(tree):
    kernels = {f"cplab/kernels/{name}" for name in ("__init__.py", "rows.py", "vectors.py", "tiles.py", "table.npy")}
    assert names("fast", tree) == {
        "variants/fast.py", "cplab/__init__.py", "cplab/decoder.py", "cplab/variant.py", *kernels
    }  # fmt: skip
    assert names("slow", tree) == {"variants/slow.py", "cplab/__init__.py", "cplab/oracle.py"}


@pytest.mark.parametrize(
    ("changed", "fast", "slow"),
    [
        ("variants/fast.py", True, False),
        ("cplab/kernels/tiles.py", True, False),
        ("cplab/kernels/table.npy", True, False),
        ("cplab/oracle.py", False, True),
        ("cplab/__init__.py", True, True),
        ("cplab/kernels/unused.py", False, False),
        ("bench/timing.py", False, False),
    ],
)
def test_the_digest_changes_with_what_the_variant_is_made_of(tree, changed, fast, slow):
    def digests():
        return [source_digest(tree / "variants" / f"{name}.py", tree) for name in ("fast", "slow")]

    before = digests()
    (tree / changed).write_text(FILES[changed] + "# changed\n")
    assert [a != b for a, b in zip(before, digests(), strict=True)] == [fast, slow]


def test_the_digest_does_not_depend_on_where_the_tree_stands(tree, tmp_path):
    before = source_digest(tree / "variants/fast.py", tree)
    moved = tree.rename(tmp_path / "elsewhere")
    assert source_digest(moved / "variants/fast.py", moved) == before


def test_a_file_that_is_missing_has_no_digest(tree):
    assert source_digest(tree / "variants/gone.py", tree) == ""


def test_real_variants_are_made_of_their_kernels():
    found = {path.name for path in sources(Path(get_variant("kv_bf16").source), OWN_TREE)}
    assert {"kv_bf16.py", "decoder.py", "bf16.py", "rows.py", "tiles.py", "team.py", "jit.py"} <= found
    assert "kv_f16.py" not in found
    assert "rows.py" not in {path.name for path in sources(Path(get_variant("numpy_f32").source), OWN_TREE)}


def git(*arguments, cwd):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tree, monkeypatch, tmp_path):
    """The tree as the lab's own, in git, with one commit."""
    git("init", "-q", cwd=tree)
    git("add", "-A", cwd=tree)
    git("commit", "-qm", "first", cwd=tree)
    monkeypatch.setattr("bench.since.OWN_TREE", tree)
    monkeypatch.setattr(worktree_module, "OWN_TREE", tree)
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path / "cache"))
    return tree


def contender(name, tree):
    file = tree / "variants" / f"{name}.py"
    made = Variant(name, "f32", "f32", "exact", lambda model, threads: None, "", "", str(file))
    return Contender(name, made, source_digest=source_digest(file, tree))


def test_since_a_revision_only_what_changed(repository):
    def changed(revision):
        found, same = changed_since(revision, [contender(name, repository) for name in ("fast", "slow")])
        return [one.name for one in found], same

    assert changed("HEAD") == ([], ["fast", "slow"])
    (repository / "cplab/kernels/tiles.py").write_text("tile = 2\n")  # not committed: measured is what is there
    assert changed("HEAD") == (["fast"], ["slow"])
    git("commit", "-qam", "second", cwd=repository)
    assert changed("HEAD") == ([], ["fast", "slow"])
    assert changed("HEAD~1") == (["fast"], ["slow"])


def test_new_variants_and_those_of_elsewhere_have_changed(repository, tmp_path):
    (repository / "variants/new.py").write_text("")
    outside = tmp_path / "outside.py"
    outside.write_text("")
    made = Variant("outside", "f32", "f32", "exact", lambda model, threads: None, "", "", str(outside))
    found, _ = changed_since(
        "HEAD",
        [contender("new", repository), Contender("outside", made, source_digest=source_digest(outside, tmp_path))],
    )
    assert [one.name for one in found] == ["new", "outside"]


def test_a_worktree_is_the_revision_and_goes_away(repository):
    (repository / "variants/fast.py").write_text("# another one\n")
    with worktree("HEAD") as (place, commit):
        assert commit == git("rev-parse", "HEAD", cwd=repository)
        assert (place / "variants/fast.py").read_text() == FILES["variants/fast.py"]
        ages = {path.stat().st_mtime for path in place.rglob("*.py")}
        with worktree("HEAD") as (other, _):  # the place is taken
            assert other != place
    assert not place.exists()
    assert len(git("worktree", "list", cwd=repository).splitlines()) == 1
    with worktree("HEAD") as (again, _):  # compiled kernels are found again by path and age
        assert again == place
        assert {path.stat().st_mtime for path in again.rglob("*.py")} == ages


def test_what_a_killed_process_left_is_no_obstacle(repository):
    with worktree("HEAD") as (place, _):
        pass
    git("worktree", "add", "-q", "--detach", str(place), cwd=repository)
    (place.parent / f"{place.name}.pid").write_text("999999999")
    with worktree("HEAD") as (again, _):
        assert (again / "variants/fast.py").is_file()


@pytest.mark.parametrize("revision", ["no-such-branch", "--help", "HEAD~99"])
def test_an_unknown_revision_is_one_line(repository, revision):
    with pytest.raises(ComparisonError, match="no revision of the git checkout"), worktree(revision):
        pass


def test_without_git_there_are_no_revisions(tree, monkeypatch):
    monkeypatch.setattr(worktree_module, "OWN_TREE", tree)
    with pytest.raises(ComparisonError), worktree("HEAD"):
        pass
