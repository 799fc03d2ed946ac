"""Where we are in each partition of a topic, and what is lost between that and what the brokers still have."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from harken.source import Gap, Located

__all__ = ["Position", "Retained", "located", "resume"]


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The offset to read next, by partition. `topic` is the id of the topic, empty where brokers have none.

    `generation` counts how often the offsets began anew under that id, so that a message has another name than the one
    that had its offset before.
    """

    topic: str = ""
    generation: int = 0
    offsets: dict[str, int]

    @property
    def incarnation(self) -> str:
        return self.topic + (f"~{self.generation}" if self.generation else "")


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """The first offset of a partition that the brokers still have, and the one that comes after the last."""

    begin: int
    end: int


def resume(
    name: str, position: Position, topic_id: str, retained: Mapping[int, Retained]
) -> tuple[Position, Gap | None]:
    """Where to read on. Partitions that we have not seen before are read from their beginning."""
    ours = {int(number): offset for number, offset in position.offsets.items()}
    another = bool(position.topic and topic_id) and position.topic != topic_id
    shorter = any(number not in retained or retained[number].end < offset for number, offset in ours.items())
    if another or (shorter and not (topic_id and topic_id == position.topic)):
        return _created_anew(name, position, topic_id, retained)
    if shorter:
        return _cut_off(name, position, topic_id, retained)
    lost = {number: have.begin - ours.get(number, 0) for number, have in retained.items()}
    lost = {number: count for number, count in sorted(lost.items()) if count > 0}
    offsets = {str(number): max(have.begin, ours.get(number, 0)) for number, have in sorted(retained.items())}
    found = Position(topic=topic_id or position.topic, generation=position.generation, offsets=offsets)
    return found, _deleted(name, position, ours, lost) if lost else None


def located(
    ours: Position | None, topic_id: str, offsets: Mapping[str, int], retained: Mapping[int, Retained]
) -> Located:
    """The place with these offsets. Messages keep the names that they have at our position."""
    same = ours is not None and (ours.topic == topic_id or not (ours.topic and topic_id))
    generation = ours.generation if ours is not None and same else 0
    read = ours.offsets if ours is not None and same else {}
    ways = [read.get(number, offset) - offset for number, offset in offsets.items()]
    found = Position(topic=topic_id, generation=generation, offsets=dict(offsets))
    return Located(
        cursor=msgspec.to_builtins(found),
        messages=sum(have.end - offsets[str(number)] for number, have in retained.items()),
        again=sum(max(0, way) for way in ways),
        skipped=sum(max(0, -way) for way in ways),
        oldest=all(offsets[str(number)] <= have.begin for number, have in retained.items()),
    )


def _deleted(name: str, position: Position, ours: Mapping[int, int], lost: Mapping[int, int]) -> Gap:
    first, total = next(iter(lost)), sum(lost.values())
    where = ", ".join(str(number) for number in list(lost)[:10]) + (", …" if len(lost) > 10 else "")
    reason = f"{total:,} messages of {name} (partition {where}) were deleted before they were read"
    # our position moves on with this gap, so the first of its partitions tells it from the next one
    key = f"{position.incarnation}/{first}@{ours.get(first, 0)}+{total}"
    return Gap(key=key, reason=reason, messages=total)


def _created_anew(
    name: str, position: Position, topic_id: str, retained: Mapping[int, Retained]
) -> tuple[Position, Gap]:
    generation = 0 if topic_id else position.generation + 1
    offsets = {str(number): have.begin for number, have in sorted(retained.items())}
    reason = f"{name} was deleted and created anew; what the old topic had after our position is not known"
    gap = Gap(key=f"anew after {position.incarnation}@{_total(position)}", reason=reason)
    return Position(topic=topic_id, generation=generation, offsets=offsets), gap


def _cut_off(name: str, position: Position, topic_id: str, retained: Mapping[int, Retained]) -> tuple[Position, Gap]:
    """The same topic ends before our position: a broker that lacked its newest messages became the leader."""
    offsets = {
        str(number): max(have.begin, min(position.offsets.get(str(number), 0), have.end))
        for number, have in sorted(retained.items())
    }
    reason = f"{name} lost its newest messages when another broker took over; what replaced them is not known"
    gap = Gap(key=f"cut off at {position.incarnation}@{_total(position)}", reason=reason)
    return Position(topic=topic_id, generation=position.generation + 1, offsets=offsets), gap


def _total(position: Position) -> int:
    """One number for all offsets: it grows with each of them, and so tells one position from a later one."""
    return sum(position.offsets.values())
