"""`python -m lai_torch score`: see `lai_torch.integrations.command`."""

from lai_torch.integrations.command import main

main(prog_name="python -m lai_torch")
