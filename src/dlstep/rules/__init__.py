"""Decoding rules, one file each: which positions a block takes after a forward. The module name is the key."""
