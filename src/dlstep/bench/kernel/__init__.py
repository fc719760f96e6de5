"""Kernels against their twins and the limits of the device, and the search for their launch parameters."""
