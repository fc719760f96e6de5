"""Engine configuration, option checks, model loading and the decode loop."""
