"""Fleets that are larger than these machines: real schedulers on scripted samples, in virtual time."""
