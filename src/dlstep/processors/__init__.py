"""Processors of logits, one file each, found by module name. They load without torch, which the server's HTTP process lacks."""
