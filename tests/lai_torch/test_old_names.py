"""Names that changed: the old ones warn, and work."""

import lai_torch
import pytest
import torch

from tests.lai_torch.support import LOSS, batch, network


def test_old_names_warn_and_work():
    torch.manual_seed(0)
    model, losses = network(), torch.ones(2)
    with pytest.warns(DeprecationWarning, match="share= is called validation_fraction= now"):
        weigher = lai_torch.Weigher(model, LOSS, batch(9, 4), share=0.5, group=False)
    with pytest.warns(DeprecationWarning, match="share= is called fraction= now"):
        total = weigher.objective(losses, losses, auxiliary=torch.ones(()), share=0.5)
    (_, report), covered = weigher.score(*batch(6, 4)), lai_torch.coverage(model, LOSS, *batch(6, 4))
    with pytest.warns(DeprecationWarning, match="called kept_fraction now"):
        assert report.share == report.kept_fraction
    with pytest.warns(DeprecationWarning, match="called fraction now"):
        assert covered.share == covered.fraction
    with pytest.warns(DeprecationWarning, match="Kept is called KeptOptions now"):
        assert lai_torch.Kept is lai_torch.KeptOptions
    with pytest.warns(DeprecationWarning, match="share= is called fraction= now"):
        assert lai_torch.GroupFloor(share=0.5) == lai_torch.GroupFloor(0.5)
    assert total == 2.5
    with pytest.raises(TypeError, match="share"):
        lai_torch.Weigher(model, LOSS, batch(9, 4), share=0.5, validation_fraction=0.5)
