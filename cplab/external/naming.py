"""``external:TARGET?options``: what a name of an engine means, and the variant that comes of it."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import parse_qsl

from cplab.errors import UnknownVariantError
from cplab.formats import FORMATS
from cplab.model import Model
from cplab.oracle_quantised import ARITHMETICS
from cplab.variant import CodePredictor, Tier, Variant

PREFIX = "external:"
#: What the default, the stored format, is called where it has to be said.
STORED = "stored"

_LIBRARY = re.compile(r"\.(so(\.\d+)*|dylib|dll)$")
_OPTIONS = re.compile(r"\?(\w+=[^?/]*)$")
_KEYS = ("tier", "format", "file")


@dataclass(frozen=True, slots=True)
class ExternalName:
    """What ``external:TARGET?options`` says.

    Attributes:
        name: all of it.
        kind: ``library`` where the target ends in .so (or .so.1), .dylib or .dll; else ``program``.
        words: the library's path, or a program and its arguments.
        tier: what the gate asks.
        format: how it holds matrices, or "" where that was not said.
        file: what the matrices of its model file are: a format, or `STORED`.
    """

    name: str
    kind: Literal["library", "program"]
    words: tuple[str, ...]
    tier: Tier
    format: str
    file: str


def parsed(name: str) -> ExternalName:
    """Take a name apart.

    Raises:
        UnknownVariantError: no target, an unknown option or value, or a library or program that is not there.
    """
    target = name.removeprefix(PREFIX)
    found = _OPTIONS.search(target)
    options = dict(parse_qsl(found[1], keep_blank_values=True)) if found else {}
    target = target[: found.start()].strip() if found else target.strip()
    if not target:
        raise UnknownVariantError(f"{name}: a library or a command is wanted, such as {PREFIX}./libmine.so")
    for key, value in options.items():
        _check_option(name, key, value)
    form = options.get("format", "")
    tier: Tier = options.get("tier", "codes")
    file = options.get("file") or form or STORED
    if _LIBRARY.search(target):
        path = Path(target).expanduser()
        if not path.is_file():
            raise UnknownVariantError(f"{name}: {path}: no such library")
        return ExternalName(name, "library", (str(path.absolute()),), tier, form, file)
    return ExternalName(name, "program", _command(name, target), tier, form, file)


def external_variant(name: str) -> Variant:
    """The variant of a name.

    Raises:
        UnknownVariantError: as `parsed`.
    """
    external = parsed(name)
    law = external.format if external.format in ARITHMETICS else "f32"

    def build(model: Model, threads: int) -> CodePredictor:
        from cplab.external.predictor import ExternalPredictor

        return ExternalPredictor(external, model, threads)

    return Variant(
        name=name,
        format=external.format or "f32",
        arithmetic=law if external.tier == "exact" else Path(external.words[0]).name,
        tier=external.tier,
        build=build,
        summary=f"Another's {external.kind}: {shlex.join(external.words)}",
        extra="",
        source=external.words[0],
    )


def _check_option(name: str, key: str, value: str) -> None:
    allowed = {"tier": get_args(Tier), "format": tuple(FORMATS), "file": (STORED, *FORMATS)}
    if key not in allowed:
        raise UnknownVariantError(f"{name}: no option {key!r}; there are {', '.join(_KEYS)}")
    if value not in allowed[key]:
        raise UnknownVariantError(f"{name}: {key}={value}; {', '.join(allowed[key])} are known")


def _command(name: str, target: str) -> tuple[str, ...]:
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise UnknownVariantError(f"{name}: not a command: {error}") from error
    program = shutil.which(str(Path(words[0]).expanduser()) if words[0].startswith("~") else words[0])
    if program is None:
        there = Path(words[0]).expanduser().is_file()
        why = "it may not be executed (chmod +x)" if there else "no such program"
        raise UnknownVariantError(f"{name}: {words[0]}: {why}; a library's name ends in .so, .dylib or .dll")
    return (str(Path(program).absolute()), *words[1:])  # no link is followed: a venv's python is one
