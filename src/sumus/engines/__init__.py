"""Transports, a folder each: they move bytes between the parties."""

from __future__ import annotations
