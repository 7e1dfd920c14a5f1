"""The errors of the measuring half. Like the lab's own: one line says what, where, and what to do."""

from __future__ import annotations

from cplab.errors import CplabError


class OutputError(CplabError):
    """A run's results cannot be written."""


class GateFailedError(CplabError):
    """What was to be timed is wrong; nothing was timed."""


class UnfinishedRunError(CplabError):
    """A run that did not end cannot be read or gone on with."""


class ComparisonError(CplabError):
    """Two things cannot be compared: one is no cell, no run and no revision, or they are the same."""


class HistoryError(CplabError):
    """There are no runs to tell of, or none of what was asked for."""
