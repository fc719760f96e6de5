"""Long answers and long hours: the page stays smooth, and does not grow."""

import pytest


def heap(watched):
    """Bytes that the page's scripts hold, after all garbage is gone."""
    session = watched.page.context.new_cdp_session(watched.page)
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    nodes = session.send("Memory.getDOMCounters")["nodes"]
    session.detach()
    return int(used) + 200 * int(nodes)


@pytest.mark.stress
def test_a_page_that_stays_open_does_not_grow(visit, report):
    watched = visit()
    page = watched.page

    def runs(count):
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
