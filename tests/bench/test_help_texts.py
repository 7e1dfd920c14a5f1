"""Every command's help, as it is printed: shapes in brackets are text, not the markup of a terminal."""

from __future__ import annotations

import re

import pytest
import typer

from bench.cli import app as bench
from cplab.__main__ import app as cplab
from cplab.commandline import GOOD, run

_SHAPE = re.compile(r"\[[^\[\]]+\]")
COMMANDS = [
    pytest.param(app, name, command, id=f"{program} {name}")
    for program, app in (("bench", bench), ("cplab", cplab))
    for name, command in sorted(typer.main.get_command(app).commands.items())
]


def written(command):
    """The texts that a command's author wrote, without the backslash that keeps a bracket from being markup."""
    texts = [command.help, *(getattr(parameter, "help", None) for parameter in command.params)]
    return " ".join(" ".join((text or "").split()) for text in texts).replace("\\[", "[")


def printed(app, capsys, monkeypatch, *arguments):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 1000)
    assert run(app, [*arguments, "--help"]) == GOOD
    return capsys.readouterr().out


@pytest.mark.parametrize(("app", "name", "command"), COMMANDS)
def test_shapes_in_brackets_are_shown(app, name, command, capsys, monkeypatch):
    out = printed(app, capsys, monkeypatch, name)
    for shape in _SHAPE.findall(written(command)):
        assert shape in out
    assert "\\[" not in out


@pytest.mark.parametrize("app", [bench, cplab], ids=["bench", "cplab"])
def test_so_they_are_where_commands_are_listed(app, capsys, monkeypatch):
    out = printed(app, capsys, monkeypatch)
    for name, command in typer.main.get_command(app).commands.items():
        assert f" {name} " in out
        for shape in _SHAPE.findall((command.help or "").splitlines()[0]):
            assert shape in out


def test_there_are_shapes_to_show():
    found = {shape for parameters in COMMANDS for shape in _SHAPE.findall(written(parameters.values[2]))}
    assert {"[F, talker_hidden]", "[frames, 16]", "[N, 16]"} <= found
