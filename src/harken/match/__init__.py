"""Matching: batch + memory + rules → intents. Pure: no clock, no store, no network."""

from harken.match.backtest_prefilter import Screen, Screened
from harken.match.compiled_rules import Rule, Rules, compile_rules
from harken.match.decide import Read, match, spaced_due, variables_of
from harken.match.gather_example_timelines import stories
from harken.match.new_feed_items import Sighting, memory_id, recognise

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
