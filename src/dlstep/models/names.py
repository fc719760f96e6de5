"""Rules that map names of checkpoint tensors to parameters of a network."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WeightRule:
    """Where a checkpoint tensor goes if the regex `pattern` matches its whole name.

    `targets` are templates of parameter names, as for `re.Match.expand`. With several, the tensor's
    rows are split among them in order, as many as each parameter has. A group named `expert` is the
    index into the first dimension of the target, which stacks all experts; `half` 0 or 1 then
    selects half of that expert's rows (None: all).
    """

    pattern: str
    targets: tuple[str, ...]
    half: int | None = None
