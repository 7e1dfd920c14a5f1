"""What a variant is made of, as a digest: whether its speed can have changed since a revision.

That is its own file and every module of the same source tree that it imports, directly or not, also within functions:
for a variant of the lab the decoder, its weight formats and the kernels with all that becomes machine code. To these
come the files that such a module names in a string and that lie beside it (the table of RoPE). A changed comment counts
as a change: measuring once too often costs minutes. Not in it are other packages' versions, which no revision holds.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

#: Packages of a tree whose modules are followed. What times a variant is not what it is made of.
PACKAGES = ("cplab", "variants")

OWN_TREE = Path(__file__).resolve().parent.parent
"""The folder that holds the packages which run now."""


def source_digest(file: Path, tree: Path) -> str:
    """Digest of all that a variant is made of, 16 hexadecimal digits; "" where its file is missing.

    Args:
        file: the variant's module, within the tree or outside of it.
        tree: folder that holds the packages.
    """
    if not file.is_file():
        return ""
    digest = hashlib.sha256()
    for path in sources(file, tree):
        name = path.relative_to(tree).as_posix() if path.is_relative_to(tree) else path.name
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def sources(file: Path, tree: Path) -> list[Path]:
    """The files that `source_digest` reads, sorted."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".py":
            waiting += _used_by(path, tree)
    return sorted(found)


def _used_by(path: Path, tree: Path) -> Iterator[Path]:
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # whoever imports it will be told
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(alias.name, tree)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, path, tree)
            yield from _files_of(base, tree)
            for alias in node.names:
                yield from _files_of(f"{base}.{alias.name}", tree)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _may_be_a_file(node.value):
            beside = path.parent / node.value
            if beside.is_file():
                yield beside


def _absolute(node: ast.ImportFrom, path: Path, tree: Path) -> str:
    """The module that a from-import names, its dots resolved."""
    if not node.level or not path.is_relative_to(tree):
        return node.module or ""
    package = path.relative_to(tree).parent.parts
    return ".".join([*package[: len(package) + 1 - node.level], *([node.module] if node.module else [])])


def _files_of(name: str, tree: Path) -> Iterator[Path]:
    """A module's file and the packages that importing it runs; nothing for other trees' modules."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        return
    for depth in range(1, len(parts) + 1):
        base = tree.joinpath(*parts[:depth])
        for candidate in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if candidate.is_file():
                yield candidate


def _may_be_a_file(text: str) -> bool:
    return 0 < len(text) < 100 and "/" not in text and "." in text.strip(".") and "\0" not in text and "\n" not in text
