"""Another revision of the lab's own source tree, checked out beside it for as long as it is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.errors import ComparisonError
from bench.sources import OWN_TREE
from cplab.cachedir import cache_dir, writing_to_cache


@contextmanager
def worktree(revision: str) -> Iterator[tuple[Path, str]]:
    """A temporary git worktree: the folder with the revision's packages, and its full commit.

    It is removed at the end, with its entry in the repository. It stands in the cache, at a place that is the commit's,
    with files as old as the commit: numba knows compiled kernels by path and age, and would compile them again for any
    other place. What a killed process left there is removed first.

    Raises:
        ComparisonError: the lab does not run from a git checkout, or there is no such revision.
    """
    commit = commit_of(revision)
    prefix = _git("rev-parse", "--show-prefix").strip()
    with _place(commit[:12]) as tree:
        # No hooks: somebody's post-checkout is nothing that a measurement should wait for.
        _git("-c", f"core.hooksPath={os.devnull}", "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            born_s = int(_git("show", "--no-patch", "--format=%ct", commit))
            for path in tree.rglob("*.py"):
                os.utime(path, (born_s, born_s))
            yield tree / prefix, commit
        finally:
            _git("worktree", "remove", "--force", str(tree))


@contextmanager
def _place(name: str) -> Iterator[Path]:
    """A path for a worktree: the commit's own, or a random one where another process uses that now."""
    own, owner = cache_dir() / "trees" / name, cache_dir() / "trees" / f"{name}.pid"
    with writing_to_cache(own):
        own.parent.mkdir(parents=True, exist_ok=True)
        taken = owner.is_file() and psutil.pid_exists(int(owner.read_text() or 0))
        if not taken:
            owner.write_text(str(os.getpid()))
            shutil.rmtree(own, ignore_errors=True)
    if taken:
        with tempfile.TemporaryDirectory(prefix="cplab-tree-") as folder:
            yield Path(folder).resolve() / name
        return
    _git("worktree", "prune")
    try:
        yield own
    finally:
        owner.unlink(missing_ok=True)


def commit_of(revision: str) -> str:
    """The full commit that a revision names.

    Raises:
        ComparisonError: as of `worktree`.
    """
    return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()


def _git(*arguments: str) -> str:
    # In a git hook GIT_DIR and its like point to the repository that the hook is of.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=OWN_TREE, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ComparisonError(f"git cannot be run: {error.strerror or error}; other revisions need it") from error
    if result.returncode == 0:
        return result.stdout
    if arguments[:2] == ("rev-parse", "--verify"):
        revision = arguments[-1].removesuffix("^{commit}")
        raise ComparisonError(f"{revision}: no revision of the git checkout in {OWN_TREE}")
    said = " ".join(result.stderr.split())
    raise ComparisonError(f"git {' '.join(arguments[:2])} failed in {OWN_TREE}: {said}")
