"""Another revision of the lab's own source tree, checked out beside it for as long as it is needed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import ComparisonError
from bench.sources import OWN_TREE


@contextmanager
def worktree(revision: str) -> Iterator[tuple[Path, str]]:
    """A temporary git worktree: the folder with the revision's packages, and its full commit.

    It is removed at the end, with its entry in the repository. A killed process leaves both; ``git worktree prune``
    removes the entry once the folder is gone.

    Raises:
        ComparisonError: the lab does not run from a git checkout, or there is no such revision.
    """
    commit = commit_of(revision)
    prefix = _git("rev-parse", "--show-prefix").strip()
    with tempfile.TemporaryDirectory(prefix="cplab-tree-") as folder:
        tree = Path(folder).resolve() / commit[:9]
        # No hooks: somebody's post-checkout is nothing that a measurement should wait for.
        _git("-c", f"core.hooksPath={os.devnull}", "worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree / prefix, commit
        finally:
            _git("worktree", "remove", "--force", str(tree))


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
