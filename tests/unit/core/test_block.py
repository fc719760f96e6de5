"""Groups of positions follow from their definition; blocks whose positions are replaced by any number of masks."""

from hypothesis import given, strategies as st

from dlstep.core.block import Block, Grid, Replacement, moved

MOST = 40
MASK = 99
COUNTS = st.integers(0, 3)


@given(origin=st.integers(0, 12), size=st.integers(1, 6), position=st.integers(0, MOST))
def test_bounds_follow_from_the_groups(origin, size, position):
    grid = Grid(origin, size)
    groups = [0 if place < origin else 1 + (place - origin) // size for place in range(MOST + size + origin + 1)]
    own = [place for place, group in enumerate(groups) if group == groups[position]]
    assert (grid.group(position), grid.start(position), grid.end(position)) == (groups[position], own[0], own[-1] + 1)
    boundaries = [place for place in range(len(groups)) if not place or groups[place] != groups[place - 1]]
    assert grid.cover(position) == next(boundary for boundary in boundaries if boundary >= position)


@st.composite
def blocks(draw):
    """Blocks with masked, unmasked and given positions; a token is the number of its position."""
    start, kinds = draw(st.integers(0, 5)), draw(st.lists(st.sampled_from(["masked", "unmasked", "given"]), max_size=8))
    masked = tuple(position for position, kind in enumerate(kinds, start) if kind == "masked")
    tokens = tuple(MASK if position in masked else position for position in range(start, start + len(kinds)))
    chances = tuple(0.0 if token == MASK else 0.5 for token in tokens)
    return Block(start, tokens, masked, chances, sum(1 << n for n, kind in enumerate(kinds) if kind == "given"), opened=3)


def replacements(draw, positions):
    """Numbers of masks in place of some of these positions."""
    counts = draw(st.dictionaries(st.sampled_from(positions), COUNTS) if positions else st.just({}))
    return tuple(Replacement(position, counts[position]) for position in sorted(counts))


@given(st.data())
def test_positions_that_stay_keep_token_probability_and_kind_at_their_new_place(data):
    block = data.draw(blocks())
    replaced = replacements(data.draw, range(block.start, block.end))
    after = block.resized(replaced, MASK)
    assert (after.start, after.opened, after.end) == (block.start, block.opened, moved(block.end, replaced))
    assert len(after.tokens) == len(after.probabilities) and after.given < 1 << len(after.tokens)
    places = {
        position: moved(position, replaced)
        for position in range(block.start, block.end)
        if position not in {each.position for each in replaced}
    }
    for position, place in places.items():
        old, new = [
            (own.tokens[at - own.start], own.probabilities[at - own.start], at in own.masked, own.given >> (at - own.start) & 1)
            for own, at in ((block, position), (after, place))
        ]
        assert new == old
    added = {*range(after.start, after.end)} - {*places.values()}
    assert len(added) == sum(each.count for each in replaced) and added <= {*after.masked}
    assert list(after.masked) == sorted({*after.masked}) and {after.tokens[at - after.start] for at in after.masked} <= {MASK}
    assert not any(after.given >> (at - after.start) & 1 or after.probabilities[at - after.start] for at in added)
