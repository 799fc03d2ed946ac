"""What became of a message of a stream that is not stored: pure sentences from what the store and the broker say."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harken.operate.explanations import Explanation, Missing, explain_unseen, feed_details, feed_name, trouble
from harken.operate.wording import lag_text, when
from harken.source import Lag, Place
from harken.store import DeadLetter

__all__ = ["Sought", "explain_dead_letter", "explain_message"]


SENDER = "Look at the sender's own log: was it sent, and to this stream?"


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is looked for.

    `place` is where it would be in the stream; None where the source cannot tell, as for every queue. `lag` is known to
    the controller that follows the stream. `gaps` are those announced for the feed, newest first. `in_hand_since`: when
    that controller took it from the broker, if it is not committed yet.
    """

    place: Place | None
    lag: Lag | None
    gaps: tuple[str, ...] = ()
    in_hand_since: datetime | None = None


def explain_dead_letter(missing: Missing, letter: DeadLetter) -> Explanation:
    """Return the answer for an event or message that could not be stored."""
    feed = feed_name(missing, missing.state) if missing.state else letter.trigger
    sentence = (
        f"{missing.key} was read from feed {feed}, but it became a dead letter {when(letter.at, missing.now)}: "
        f"{letter.reason}. It starts nothing"
    )
    advice = (
        "See what was refused: harken dead list",
        f"Correct it where it comes from and have it sent again; then drop the letter: harken dead drop {letter.id}",
    )
    details = {"dead_letter": letter.id, "reason": letter.reason}
    return Explanation(stage="read", outcome="dead_letter", sentence=sentence, details=details, advice=advice)


def explain_message(missing: Missing, sought: Sought) -> Explanation:
    """Return the answer for a message of which nothing is stored."""
    if missing.state is None:
        return explain_unseen(missing)
    if sought.in_hand_since is not None:
        given = _in_flight(missing, sought.in_hand_since)
    elif sought.place == "ahead":
        given = _ahead(missing, sought)
    elif sought.place == "behind":
        given = _behind(missing, sought)
    else:
        given = _unplaced(missing, sought)
    found = trouble(missing, missing.state)
    sentence, advice = given.sentence, given.advice
    if found is not None:
        sentence, advice = f"{sentence}. {found[0]}", (*found[1], *advice)
    details = feed_details(missing, missing.state) | {"lag": _lag(sought), "announced_gaps": list(sought.gaps)}
    return msgspec.structs.replace(given, sentence=sentence, details=details, advice=advice)


def _in_flight(missing: Missing, since: datetime) -> Explanation:
    assert missing.state is not None
    feed = feed_name(missing, missing.state)
    sentence = (
        f"{missing.key} is in flight: it was taken from the broker of feed {feed} {when(since, missing.now)}, and is "
        "not committed yet, as the store has not taken it so far. It is not acknowledged, so it comes again if this "
        "process dies"
    )
    advice = ("See whether the store can write: harken status", f"Ask again: harken explain {missing.trigger.name} …")
    return Explanation(stage="read", outcome="in_flight", sentence=sentence, advice=advice)


def _ahead(missing: Missing, sought: Sought) -> Explanation:
    assert missing.state is not None
    feed = feed_name(missing, missing.state)
    if sought.lag is not None and sought.lag.messages == 0:
        sentence = (
            f"{missing.key} is not yet read from feed {feed}: it would come after the last message, and nothing waits "
            "at the broker. It was not sent so far, or not to this stream"
        )
        return Explanation(stage="read", outcome="not_read", sentence=sentence, advice=(SENDER,))
    sentence = (
        f"{missing.key} is not yet read from feed {feed}: it comes after the last message that was read "
        f"(lag: {_lag(sought) or 'not known'})"
    )
    running = () if sought.lag is not None else ("Does a controller follow the stream? See: harken status",)
    advice = (*running, f"It is read in its turn; see how far that is: harken feeds show {feed}")
    return Explanation(stage="read", outcome="not_read", sentence=sentence, advice=advice)


def _behind(missing: Missing, sought: Sought) -> Explanation:
    assert missing.state is not None
    feed, gaps = feed_name(missing, missing.state), sought.gaps
    announced = f"Announced gaps: {len(gaps)}, the last {gaps[0]}" if gaps else "No gap was announced"
    sentence = (
        f"Feed {feed} was read past {missing.key}, and nothing of it is stored: it was lost to the retention of the "
        "broker or never there, unless it is older than the first read or than the events that are kept here. "
        f"{announced}"
    )
    advice = (
        f"See what was read: harken events list --feed {feed}",
        "Ask the broker whether it still has it, and how long it keeps messages",
    )
    return Explanation(stage="read", outcome="lost", sentence=sentence, advice=advice)


def _unplaced(missing: Missing, sought: Sought) -> Explanation:
    assert missing.state is not None
    if sought.place is None:
        why = "A queue cannot be looked into: a message is known once it is delivered"
    elif missing.state.last_success is None:
        why = "The stream was not read yet"
    else:
        why = "The key does not tell where in the stream it is, or under which name it is stored"
    lag = _lag(sought)
    waits = f"What waits at the broker: {lag}" if lag else "How much waits at the broker is not known"
    alike = f". Something alike was: {', '.join(missing.near)}" if missing.near else ""
    sentence = f"{missing.key} was never read from feed {feed_name(missing, missing.state)}. {why}. {waits}{alike}"
    meant = (f"Did you mean: harken explain {missing.trigger.name} '{missing.near[0]}'",) if missing.near else ()
    advice = (*meant, SENDER)
    return Explanation(stage="read", outcome="never_seen", sentence=sentence, advice=advice)


def _lag(sought: Sought) -> str:
    return lag_text(sought.lag.messages, sought.lag.seconds) if sought.lag is not None else ""
