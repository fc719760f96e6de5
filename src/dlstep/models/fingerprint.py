"""A fingerprint of weights: equal for equal networks, in well under a second for any size."""

from hashlib import blake2b

import torch
from torch import Tensor, nn

from .ranks import Ranks

SAMPLES = 64  # numbers of each tensor, evenly spread


def fingerprint(network: nn.Module) -> str:
    """32 hexadecimal digits from names, shapes, dtypes and evenly spread numbers of all weights, adapters included."""
    digest = blake2b(digest_size=16)
    samples: list[Tensor] = []
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode())
        flat = tensor.detach().reshape(-1)
        count = min(SAMPLES, flat.numel())
        places = torch.arange(count, device=flat.device) * (flat.numel() - 1) // max(count - 1, 1)  # exact, whatever the size
        samples.append(flat[places].float())
    if samples:
        digest.update(torch.cat(samples).cpu().numpy().tobytes())  # one copy for all
    return digest.hexdigest()


def fingerprint_of_ranks(network: nn.Module, ranks: Ranks) -> str:
    """The fingerprint of one network; of several ranks that of all shares, which add up in another order than the whole."""
    own = fingerprint(network)
    return own if not ranks.several else blake2b(" ".join(ranks.told(own)).encode(), digest_size=16).hexdigest()
