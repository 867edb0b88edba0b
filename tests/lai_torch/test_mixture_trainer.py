"""Choosing by source in transformers' Trainer: shares move to what helps, and a resumed run is the same."""

import pytest
import torch
from lai_torch.integrations.sources import Sources
from lai_torch.integrations.transformers import CuratedTrainer

from lai_core.mixtures import Mixture, group_scores
from workloads.trainers import arguments, collate, language_model, sequences

pytestmark = pytest.mark.filterwarnings("default")  # the trainer's own


def trainer(folder, **options):
    """Return a trainer on two sources, counting and noise, and validation samples in each batch."""
    fixed = [row | {"source": 2} for row in sequences(24, 2)]
    settings = {"max_steps": 30, "save_steps": 15, "logging_steps": 5, "learning_rate": 1e-2}
    options = {"groups": "source", "mixture": Mixture(2), "period": 3, "fixed": {2: 4}} | options
    return CuratedTrainer(
        language_model(0.1),
        arguments(str(folder), **settings),
        train_dataset=[*sequences(96, 1, noise=0.5), *fixed],
        eval_dataset=sequences(24, 3),
        data_collator=collate,
        validation=sequences(24, 2),
        **options,
    )


def parameters(run):
    return torch.cat([each.detach().flatten() for each in run.model.parameters()])


@pytest.mark.slow
def test_the_shares_move_to_the_source_that_helps_and_a_resumed_run_is_the_same(tmp_path):
    through = trainer(tmp_path)
    through.train()
    shares = [line for line in through.state.log_history if "curation/share/0" in line]
    assert shares[0]["curation/share/0"] < shares[-1]["curation/share/0"]
    assert shares[-1]["curation/share/0"] + shares[-1]["curation/share/1"] == pytest.approx(1.0)
    assert all(line["curation/kept"] == 1.0 for line in shares)
    assert through.args.ignore_data_skip is False
    resumed = trainer(tmp_path)
    resumed.train(resume_from_checkpoint=f"{tmp_path}/checkpoint-15")
    assert torch.equal(parameters(resumed), parameters(through))
    assert resumed._mixing.sources.mixture.weights == through._mixing.sources.mixture.weights


def test_a_mixture_without_sources_is_refused(tmp_path):
    with pytest.raises(ValueError, match="^groups: expected the name of the entry"):
        trainer(tmp_path, groups=None)


def test_scores_of_a_period_make_one_update():
    """Numbers beyond the mixture's sources are those of validation samples: left out."""
    expected, found = Mixture(2), Mixture(2)
    sources = Sources(found, period=2)
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 40, generator=draw) + torch.tensor([3.0, -3.0, 9.0]).repeat(14)[:40]
    groups = torch.arange(40).remainder(3).expand(2, 40)
    assert not sources.add(scores[0], groups[0])
    assert found.weights == (0.5, 0.5)
    again = Sources(Mixture(2), period=2)
    again.load_state_dict(sources.state_dict())
    assert sources.add(scores[1], groups[1])
    assert again.add(scores[1], groups[1])
    expected.step(*group_scores(scores.double().flatten(), groups.flatten(), 2))
    assert found.weights == again.mixture.weights == expected.weights
    assert found.weights[0] > 0.5
