"""Training of the embedded models, which is no part of the wheel: `python -m training.train NAME`
in the repository's root."""
