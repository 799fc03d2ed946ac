"""Matching: batch + memory + rules → intents. Pure: no clock, no store, no network."""

from harken.match.decide import Read, in_turn, match
from harken.match.dedup import Sighting, memory_id, recognise
from harken.match.rules import Rule, Rules, compile_rules

__all__ = ["Read", "Rule", "Rules", "Sighting", "compile_rules", "in_turn", "match", "memory_id", "recognise"]
