"""Errors for batches with coupled samples."""


def immovable(got: str) -> ValueError:
    """Build the error of a batch whose rows cannot be exchanged."""
    return ValueError(
        "training: expected a batch whose rows can be exchanged, to check that samples are independent, got "
        f"{got}; hold one row a sample in every tensor, padded where they differ in length"
    )


def coupled() -> ValueError:
    """Build the error of samples that have no gradients of their own."""
    return ValueError(
        "model: expected every sample's loss and gradient to be its own, got ones that move with the other "
        "samples of the batch: normalise by running statistics (model.eval(), not BatchNorm in training "
        "mode), let nothing in the model or the loss average, compare or attend across the first axis, and "
        "score at the level at which samples are independent (pairs, graphs), one row for each"
    )


def sized() -> ValueError:
    """Build the error of samples whose gradients depend on how many they are."""
    return ValueError(
        "model: expected every sample's loss and gradient to be its own, got ones that move with the number "
        "of samples: do not divide by the batch's size in the loss, nor let an embedding scale its gradient "
        "by frequency"
    )
