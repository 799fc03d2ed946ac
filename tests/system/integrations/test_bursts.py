"""Much at once, at one instant, and late: the whole engine with each service, from the files on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harken.testing import VirtualClock, virtual
from tests.system.integrations.service_scenarios import SCENES
from tests.system.integrations.single_process import Laptop


@pytest.mark.parametrize("kind", SCENES)
@virtual
async def test_250_between_two_polls_all_run_once(clock: VirtualClock, tmp_path: Path, kind: str):
    scene = SCENES[kind](clock, cap=60)
    async with scene.fake.serve():
        laptop = Laptop(tmp_path, clock, scene)
        await laptop.up()
        await clock.sleep(95)
        wanted = [scene.happen() for _ in range(250)]
        await clock.sleep(300)
        ran = await laptop.ran(scene.trigger)
        await laptop.down()

    assert ran == Counter(wanted)


@pytest.mark.parametrize("kind", SCENES)
@virtual
async def test_equal_instants_at_the_border_of_a_page_and_late_ones_are_all_seen(
    clock: VirtualClock, tmp_path: Path, kind: str
):
    scene = SCENES[kind](clock, cap=3)
    async with scene.fake.serve():
        laptop = Laptop(tmp_path, clock, scene)
        await laptop.up()
        await clock.sleep(95)
        late = [scene.happen(late=75), scene.happen(late=40)]
        await clock.sleep(20)
        # newer ones are read before those show themselves
        tied = [scene.happen() for _ in range(10)]
        await clock.sleep(300)
        ran = await laptop.ran(scene.trigger)
        await laptop.down()

    assert ran == Counter([*late, *tied])
