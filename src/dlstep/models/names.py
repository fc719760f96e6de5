"""How the tensors of a checkpoint become the parameters of a network: rules about names, without any tensor."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """Where a checkpoint tensor goes whose whole name matches the regular expression `pattern`.

    `targets` are templates of parameter names as `re.Match.expand` takes them. With several, the rows of the tensor are
    split among them in order, each taking as many as its parameter has. A group named `expert` in the pattern is the index
    into the first dimension of the target, which stacks all experts; `half` 0 or 1 is then the half of the rows of that
    expert that the tensor fills (None: all of them).
    """

    pattern: str
    targets: tuple[str, ...]
    half: int | None = None
