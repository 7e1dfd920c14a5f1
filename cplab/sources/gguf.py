"""GGUF files: our own are written (`gguf_writing`), those of every dialect are read (`gguf_reading`, `dialects`)."""

from __future__ import annotations

from cplab.sources.gguf_reading import Survey, read, surveyed
from cplab.sources.gguf_writing import ARCHITECTURE, gguf_name, write

__all__ = ["ARCHITECTURE", "Survey", "gguf_name", "read", "surveyed", "write"]
