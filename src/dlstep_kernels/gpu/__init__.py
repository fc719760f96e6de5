"""The same functions as Triton kernels, each in the module named as its twin's; to import one is to import triton."""
