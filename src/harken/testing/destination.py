"""The contract of a Destination: a message arrives, or an error says what happens next. Authors run it on a fake.

class TestPigeons(DestinationContract):
    @pytest.fixture
    async def outlet(self) -> Outlet: ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec
import pytest

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.source import Destination, Message

__all__ = ["DestinationContract", "Outlet", "Refusal"]

Refusal = Literal["credential", "recipient", "limited", "down"]
REFUSALS: tuple[Refusal, ...] = ("credential", "recipient", "limited", "down")
WAIT = 17
EMOJI = "Zürich 東京 مرحبا 👩‍👩‍👧‍👦 🇨🇭 👍🏽 “quoted” <b>&amp;</b> *_`#@everyone\nsecond line"
LONG = "Every word of this sentence counts 🙂. " * 2_500


class Outlet(Protocol):
    """The destination under test, and what its recipient sees.

    `shows_repeats_once`: the service drops a repeat. `tells_wait`: a rate limit says how long to wait.
    """

    destination: Destination
    to: str
    secrets: Sequence[str]
    shows_repeats_once: bool
    tells_wait: bool

    def shown(self) -> Sequence[str]:
        """What the recipient sees, oldest first: the title, if there is one, and the text."""
        ...

    def refuse(self, why: Refusal, seconds: int) -> None:
        """Refuse the next try: wrong credential, unknown recipient, rate limit, or the service is down.

        `seconds` is the wait that a rate limit asks for.
        """
        ...


def message(outlet: Outlet, text: str = "the disk is full", *, title: str = "", key: str = "run-1/step") -> Message:
    return Message(to=outlet.to, text=text, title=title, idempotency_key=key)


async def problem(outlet: Outlet, why: Refusal) -> HarkenError:
    outlet.refuse(why, WAIT)
    with pytest.raises((RetryLater, NeedsAttention)) as caught:
        await outlet.destination.deliver(message(outlet))
    return caught.value


def error_text(error: BaseException | None) -> str:
    """Everything that a log would show of an error and its causes."""
    lines = []
    while error is not None:
        lines += [str(error), repr(error), str(error.args), str(getattr(error, "fix", ""))]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(lines)


class DestinationContract:
    """Subclass it and give an `outlet` fixture."""

    async def test_a_message_arrives(self, outlet: Outlet) -> None:
        await outlet.destination.deliver(message(outlet))
        (seen,) = outlet.shown()
        assert "the disk is full" in seen

    async def test_a_title_arrives_with_it(self, outlet: Outlet) -> None:
        await outlet.destination.deliver(message(outlet, title="Ärger 🔥"))
        (seen,) = outlet.shown()
        assert "Ärger 🔥" in seen
        assert "the disk is full" in seen

    async def test_a_title_alone_is_a_message(self, outlet: Outlet) -> None:
        await outlet.destination.deliver(message(outlet, "", title="all is well"))
        (seen,) = outlet.shown()
        assert "all is well" in seen

    async def test_every_script_and_emoji_arrives_intact(self, outlet: Outlet) -> None:
        await outlet.destination.deliver(message(outlet, EMOJI))
        (seen,) = outlet.shown()
        assert EMOJI.split() == seen.split()[-len(EMOJI.split()) :]

    async def test_half_a_character_does_no_harm(self, outlet: Outlet) -> None:
        await outlet.destination.deliver(message(outlet, "broken \ud83d here"))
        (seen,) = outlet.shown()
        assert "broken" in seen
        assert "here" in seen

    async def test_a_long_text_arrives_whole_or_visibly_cut(self, outlet: Outlet) -> None:
        await outlet.destination.deliver(message(outlet, LONG))
        (seen,) = outlet.shown()
        assert LONG[:500] in seen
        assert LONG.strip() in seen or "…" in seen[-60:]

    async def test_a_title_cannot_smuggle_anything_in(self, outlet: Outlet) -> None:
        await outlet.destination.deliver(message(outlet, title="one\r\nX-Evil: yes\r\n\r\ntwo\x00"))
        (seen,) = outlet.shown()
        assert "the disk is full" in seen
        assert "X-Evil: yes" in seen

    async def test_the_answer_is_json(self, outlet: Outlet) -> None:
        answer = await outlet.destination.deliver(message(outlet))
        assert msgspec.json.decode(msgspec.json.encode(answer)) == answer

    @pytest.mark.parametrize("to", ["?", "no such place\r\nX-Evil: yes", "../../admin?x=1"])
    async def test_a_recipient_that_cannot_be_needs_attention(self, outlet: Outlet, to: str) -> None:
        with pytest.raises(NeedsAttention) as caught:
            await outlet.destination.deliver(Message(to=to, text="lost", idempotency_key="1"))
        assert caught.value.fix
        assert not outlet.shown()

    async def test_nothing_to_say_needs_attention(self, outlet: Outlet) -> None:
        with pytest.raises(NeedsAttention):
            await outlet.destination.deliver(message(outlet, " \n"))
        assert not outlet.shown()

    @pytest.mark.parametrize("why", ["credential", "recipient"])
    async def test_a_refusal_that_a_person_must_mend_says_how(self, outlet: Outlet, why: Refusal) -> None:
        error = await problem(outlet, why)
        assert isinstance(error, NeedsAttention)
        assert error.fix
        assert not outlet.shown()

    @pytest.mark.parametrize("why", ["limited", "down"])
    async def test_what_passes_is_tried_again_and_then_arrives_once(self, outlet: Outlet, why: Refusal) -> None:
        assert isinstance(await problem(outlet, why), RetryLater)
        assert not outlet.shown()
        await outlet.destination.deliver(message(outlet))
        assert len(outlet.shown()) == 1

    async def test_the_wait_that_is_asked_for_is_passed_on(self, outlet: Outlet) -> None:
        if not outlet.tells_wait:
            pytest.skip("this service does not say how long to wait")
        error = await problem(outlet, "limited")
        assert isinstance(error, RetryLater)
        assert (error.reason, error.after) == ("rate_limited", WAIT)

    async def test_a_repeat_shows_once(self, outlet: Outlet) -> None:
        if not outlet.shows_repeats_once:
            pytest.skip("this service knows no repeats")
        for _ in range(2):
            await outlet.destination.deliver(message(outlet))
        assert len(outlet.shown()) == 1

    async def test_messages_that_only_look_alike_are_all_shown(self, outlet: Outlet) -> None:
        for key in ("run-1/step", "run-2/step", "", ""):
            await outlet.destination.deliver(message(outlet, key=key))
        assert len(outlet.shown()) == 4

    @pytest.mark.parametrize("why", REFUSALS)
    async def test_no_error_holds_a_secret_or_the_message(self, outlet: Outlet, why: Refusal) -> None:
        words = error_text(await problem(outlet, why))
        assert [secret for secret in (*outlet.secrets, "the disk is full") if secret in words] == []
