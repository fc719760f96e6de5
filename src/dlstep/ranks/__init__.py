"""Several processes that run one core and share a network: started, told what changed, and compared before every forward."""
