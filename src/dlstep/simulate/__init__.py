"""Simulated replicas: real schedulers on scripted samples, in virtual time."""
