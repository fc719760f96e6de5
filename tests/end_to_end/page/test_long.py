"""Long answers and long hours: the page stays smooth, and does not grow."""

from collections.abc import Callable
from typing import Any

import pytest

from .browser import Visit, Watched

POSITIONS, STEPS = 1000, 500
# A run of so many frames over so many positions, a part of which changes in each; taken in one frame of the screen at a time.
LONG = """async ([positions, steps]) => {
    const { Store } = await import("./page/store.js"), { Stage } = await import("./page/stage.js");
    const { palette } = await import("./page/scale.js");
    const nothing = new Proxy({}, { get: () => () => {} });
    const store = new Store(() => {}), stage = new Stage(store, nothing), colours = palette();
    const entry = store.open({ label: "long" });
    store.show([entry.key]);
    const drawing = [], between = [];
    let last = null;
    for (let seq = 0; seq < steps; seq += 1) {
        const settled = Math.floor(seq * positions / steps / 2), cells = [], tokens = [];
        const known = seq ? Math.floor((seq - 1) * positions / steps / 2) : 0;
        for (let place = known; place < settled; place += 1) tokens.push([place, 7, 0.9, " word"]);
        for (let place = settled; place < positions; place += 1) {
            const open = (place * 7919) % steps > seq;
            cells.push([place, open ? null : place % 50, open ? 0 : ((place * 31) % 100) / 100, open ? null : " word"]);
        }
        await new Promise(requestAnimationFrame);
        const begun = performance.now();
        if (last !== null) between.push(begun - last);
        last = begun;
        store.take(entry.key, { seq, step: seq, nfe: seq, settled, tokens, cells }, "");
        stage.draw(colours);
        drawing.push(performance.now() - begun);
    }
    const scrubbing = [];
    for (let seq = steps - 1; seq >= 0; seq -= 5) {
        await new Promise(requestAnimationFrame);
        const begun = performance.now();
        store.go(seq, false);
        stage.draw(colours);
        scrubbing.push(performance.now() - begun);
    }
    return [drawing, scrubbing, between].map((times) => times.sort((one, two) => one - two));
}"""


def middle(times: list[float], share: float) -> float:
    """The time below which a share of all lie."""
    return times[min(len(times) - 1, int(share * len(times)))]


@pytest.mark.stress
def test_a_large_map_is_drawn_within_a_frame_of_the_screen(visit: Visit, report: Callable[[str], None]) -> None:
    page = visit(viewport={"width": 1600, "height": 1000}).page
    drawing, scrubbing, between = page.evaluate(LONG, [POSITIONS, STEPS])
    for name, times in (("a new frame", drawing), ("another moment", scrubbing), ("between two", between)):
        report(f"{POSITIONS} x {STEPS}, {name}: {middle(times, 0.5):.1f} ms, 95 % below {middle(times, 0.95):.1f} ms")
    assert middle(drawing, 0.5) < 1000 / 60 and middle(scrubbing, 0.5) < 1000 / 60


def heap(watched: Watched) -> int:
    """Bytes that the page's scripts hold, after all garbage is gone."""
    session: Any = watched.page.context.new_cdp_session(watched.page)
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    nodes = session.send("Memory.getDOMCounters")["nodes"]
    session.detach()
    return int(used) + 200 * int(nodes)


@pytest.mark.stress
def test_a_page_that_stays_open_does_not_grow(visit: Visit, report: Callable[[str], None]) -> None:
    watched = visit()
    page = watched.page

    def runs(count: int) -> None:
        for _ in range(count):
            page.locator("#go").click()
            watched.ended()
            page.locator("#moment").fill("1")
            page.locator("[data-position='1']").click()
            watched.drawn()

    runs(80)  # more than are kept
    before = heap(watched)
    runs(120)
    page.wait_for_timeout(20_000)
    after = heap(watched)
    report(f"after 80 runs {before / 2**20:.2f} MiB, after 200 {after / 2**20:.2f} MiB")
    assert after < 1.1 * before + 2**20
    assert page.locator("#tree .run").count() <= 64
