"""``bench sweep --since REV``: which variants are made of other sources than they were."""

from __future__ import annotations

from pathlib import Path

from bench.options import Contender
from bench.sources import OWN_TREE, source_digest
from bench.worktree import worktree


def changed_since(revision: str, contenders: list[Contender]) -> tuple[list[Contender], list[str]]:
    """Those whose digest differs from the revision's, and the names of the others.

    A variant that the revision does not have has changed, and so has one from outside of this source tree, of whose
    past nothing is known.

    Raises:
        ComparisonError: there is no such revision, or no git.
    """
    with worktree(revision) as (tree, _):
        then = {contender.name: _digest_then(contender, tree) for contender in contenders}
    changed = [contender for contender in contenders if contender.source_digest != then[contender.name]]
    return changed, [contender.name for contender in contenders if contender not in changed]


def _digest_then(contender: Contender, tree: Path) -> str | None:
    file = Path(contender.variant.source).resolve()
    if not file.is_relative_to(OWN_TREE):
        return None
    return source_digest(tree / file.relative_to(OWN_TREE), tree)
