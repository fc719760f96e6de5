"""Simulated fleets: real schedulers on scripted samples, in virtual time."""
