"""Everything between a configuration and a running decode: options, checks, loading, the loop and what shares it."""
