"""Shapes and dtypes are checked in these tests, unless other tests imported the packages first."""

from jaxtyping import install_import_hook

install_import_hook(["dlstep.driver", "dlstep.models", "dlstep_kernels"], "beartype.beartype")
