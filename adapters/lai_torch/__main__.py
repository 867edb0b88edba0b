"""`python -m lai_torch score`: see `lai_torch.integrations._command`."""

from lai_torch.integrations._command import main

if __name__ == "__main__":
    main(prog_name="python -m lai_torch")
