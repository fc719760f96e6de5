"""Kernels compared with their plain torch versions and the limits of the device."""
