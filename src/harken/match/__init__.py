"""Matching: batch + memory + rules → intents. Pure: no clock, no store, no network."""

from harken.match.decide import Read, match, spaced_due, variables_of
from harken.match.dedup import Sighting, memory_id, recognise
from harken.match.gather_examples import stories
from harken.match.history_filter import Screen, Screened
from harken.match.rules import Rule, Rules, compile_rules

__all__ = [
    "Read",
    "Rule",
    "Rules",
    "Screen",
    "Screened",
    "Sighting",
    "compile_rules",
    "match",
    "memory_id",
    "recognise",
    "spaced_due",
    "stories",
    "variables_of",
]
