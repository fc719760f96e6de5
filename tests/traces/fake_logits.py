"""The logits of the recorded traces: a pure function of request profile, row position and forward number.

Vocabulary of 64: tokens 0 to 61, end of sequence 62, mask 63. All integers are 64-bit and unsigned.
"""

from dataclasses import dataclass, fields
from struct import pack, unpack

from dlstep.core.draws import mix

VOCABULARY, EOS, MASK, ORDINARY = 64, 62, 63, 62
LEVELS = (1.0, 3.0, 4.0, 5.0, 6.0, 7.5, 9.0, 11.0)


def chain(*parts: int) -> int:
    """Hash of the parts: each is folded into what the ones before gave."""
    value = 0
    for part in parts:
        value = mix(value ^ part)
    return value


@dataclass(frozen=True)
class Profile:
    """Logits of one request's network."""

    seed: int
    prompt_len: int
    shift: int = 0
    lo: int = 0
    hi: int = 7
    wrong16: int = 0
    wrong_max_level: int = 0
    mask16: int = 0
    tie16: int = 0
    eos_at: int | None = None
    eos_fill: bool = False
    rep_from: int | None = None
    rep_to: int | None = None
    glitch_at: int | None = None
    glitch_n: int = 0

    @staticmethod
    def read(data: dict[str, object]) -> "Profile":
        """The profile as a trace holds it."""
        return Profile(**{field.name: data[field.name] for field in fields(Profile)})  # type: ignore[arg-type]

    def _target(self, position: int, offset: int) -> int:
        if self.rep_from is not None and self.rep_to is not None and self.rep_from <= offset < self.rep_to:
            return chain(self.seed, 5) % ORDINARY
        if self.eos_at is not None and (offset == self.eos_at or (self.eos_fill and offset > self.eos_at)):
            return EOS
        return chain(self.seed, 2, position) % ORDINARY

    def peaks(self, row: int, forward: int) -> tuple[int, float, int, float]:
        """Best id and its logit, second id and its logit, of the row at position `row` in forward number `forward`."""
        position = row + self.shift
        offset = position - self.prompt_len
        glitch = self.glitch_at is not None and offset == self.glitch_at and forward < self.glitch_n
        span = self.hi - self.lo + 1
        level = 7 if glitch else self.lo + (forward + chain(self.seed, 1, position)) % span
        height = LEVELS[level] + ((357 * position) % 1024) / 4096
        target = self._target(position, offset)
        noise = chain(self.seed, 3, position, forward)
        if glitch:
            top = EOS
        elif noise % 16 < self.wrong16 and level <= self.wrong_max_level:
            top = (target + 1 + (noise >> 8) % 61) % ORDINARY
        elif (noise >> 16) % 16 < self.mask16:
            top = MASK
        else:
            top = target
        runner = (top + 1 + chain(self.seed, 4, position, forward) % 61) % ORDINARY
        return top, height, runner, height if (noise >> 24) % 16 < self.tie16 else 0.5

    def logits(self, row: int, forward: int) -> list[float]:
        """All logits of one row, as float32 values."""
        values = [-token / 1024 for token in range(VOCABULARY)]
        top, height, runner, second = self.peaks(row, forward)
        values[runner] = second
        values[top] = height
        return [unpack("f", pack("f", value))[0] for value in values]
