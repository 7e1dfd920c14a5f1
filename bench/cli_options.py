"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cplab.commandline import MOST_THREADS, finite
from cplab.errors import CplabError

if TYPE_CHECKING:
    from bench.options import Contender, Options
    from cplab.variant import Variant

Model = Annotated[str, typer.Option("--model", help="A checkpoint's folder, a GGUF file, or synthetic:0.6b.")]
Variants = Annotated[
    str, typer.Option("--variants", help="Names, separated by commas; default: all (a sweep: all that suit the model).")
]
Threads = Annotated[str, typer.Option("--threads", help="Such as 1,2,4 or 1-8; default: this machine's own list.")]
TeamSize = Annotated[
    int | None,
    typer.Option("--threads", "-t", help="Team size; default: this machine's cores.", min=1, max=MOST_THREADS),
]
Golden = Annotated[Path | None, typer.Option("--golden", help="A golden file; default: the one of these weights.")]
Files = Annotated[
    list[Path] | None, typer.Option("--variant-file", help="A Python file with a variant that is not installed.")
]
Batch = Annotated[str, typer.Option("--batch", help="Frames of different utterances at once, such as 1,2,4,8.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for runs.")]
TimeoutS = Annotated[
    float | None,
    typer.Option("--timeout", help="Seconds after which a worker counts as hung.", min=1, max=86400, callback=finite),
]
Seed = Annotated[int, typer.Option(help="Of the order in which cells are measured.")]


def options_for(
    model: str,
    contenders: list[Contender],
    golden: Path | None,
    files: list[Path] | None,
    timeout_s: float | None,
    **asked: Any,
) -> Options:
    """A sweep's options from what every measuring command takes, and what one of them adds."""
    from bench.options import Options

    return Options(
        model=model,
        contenders=contenders,
        golden=str(golden or ""),
        variant_files=[str(file) for file in files or []],
        timeout_s=timeout_s,
        **asked,
    )


def one_variant(name: str, files: list[Path] | None) -> Variant:
    """The one variant of that name.

    Raises:
        CplabError: several names, none, or one that nobody registered.
    """
    from bench.choosing import chosen_variants

    if not name.strip() or "," in name:
        raise CplabError(f"{name!r}: one variant is wanted; python -m bench list names them")
    return chosen_variants(name, files)[0]
