"""What `python -m cplab inspect` prints: a file's dialect, its tensors, its Spec and where each number came from."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cplab.commandline import print_whole
from cplab.sources.gguf_header import StoredTensor
from cplab.sources.gguf_reading import Survey


def show(survey: Survey, console: Console) -> None:
    """Print a survey. Names are folded on a terminal and never cut; into a pipe or file goes one line a tensor."""
    print_whole(Group(*_report(survey)), console)


def _report(survey: Survey) -> Iterable[RenderableType]:
    note = f" ({survey.dialect.note})" if survey.dialect.note else ""
    yield _text(f"dialect: {survey.dialect.name}{note}")
    yield _tensors(survey)
    yield _text(_totals(survey))
    yield _spec(survey)
    yield from _problems(survey)


def _tensors(survey: Survey) -> Table:
    several = len({stored.file for stored in survey.tensors.values()}) > 1
    table = _table("checkpoint name", "name in the file", "shape", "type", "bytes", *(["file"] if several else []))
    for stored in survey.tensors.values():
        row = (
            _checkpoint_name(survey, stored),
            stored.name,
            str(list(stored.shape)),
            stored.kind.name,
            f"{stored.nbytes:,}",
        )
        table.add_row(*map(_text, [*row, *([stored.file.name] if several else [])]))
    return table


def _checkpoint_name(survey: Survey, stored: StoredTensor) -> str:
    """The checkpoint's name, or why there is none."""
    if survey.is_foreign(stored):
        return "- not the code predictor's"
    name = survey.dialect.checkpoint_name(stored.name)
    if name is None or (survey.spec and name not in survey.spec.shapes() and "*" not in name):
        return "! left over"
    return name


def _totals(survey: Survey) -> str:
    def told(tensors: list[StoredTensor]) -> str:
        return f"{len(tensors)} tensors, {sum(t.nbytes for t in tensors):,} bytes"

    ours = [t for t in survey.tensors.values() if not survey.is_foreign(t)]
    foreign = [t for t in survey.tensors.values() if survey.is_foreign(t)]
    return f"code predictor: {told(ours)}" + (f"; others: {told(foreign)}" if foreign else "")


def _spec(survey: Survey) -> Table:
    table = _table("spec", "value", "from")
    for name, value in survey.values.items():
        table.add_row(*map(_text, (name, str(value), survey.origins[name])))
    if survey.spec is not None:
        where = "a projection's tensor is there" if survey.spec.projected else "no projection's tensor is there"
        table.add_row("projected", str(survey.spec.projected), where)
    return table


def _problems(survey: Survey) -> Iterable[Text]:
    if not survey.problems:
        yield _text("nothing is wrong: every tensor is there once and none is left over")
        return
    yield _text("wrong:")
    yield from (_text(f"  {problem}") for problem in survey.problems)


def _text(told: str) -> Text:
    """Names out of foreign files, neither taken for markup nor able to break a line."""
    return Text("".join(c if c.isprintable() else repr(c)[1:-1] for c in told))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column == "bytes" else "left")
    return table
