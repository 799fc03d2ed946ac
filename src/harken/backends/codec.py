"""What stores keep as JSON, as values again."""

from __future__ import annotations

import msgspec

from harken.backoff import Health
from harken.event import Span, Verdict
from harken.feed import Feed, Trigger

__all__ = ["decode_feed", "decode_health", "decode_json", "decode_spans", "decode_trigger", "decode_verdicts"]

# made at import and not when first used: msgspec crashes the process when two threads meet a type for the first time
decode_feed = msgspec.json.Decoder(Feed).decode
decode_trigger = msgspec.json.Decoder(Trigger).decode
decode_health = msgspec.json.Decoder(Health).decode
decode_spans = msgspec.json.Decoder(list[Span]).decode
decode_verdicts = msgspec.json.Decoder(tuple[Verdict, ...]).decode
decode_json = msgspec.json.Decoder().decode
