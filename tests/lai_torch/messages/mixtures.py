"""Mistakes with samplers and streams over sources."""

from lai_torch import MixtureSampler, MixtureStream

GROUPS = [0, 0, 0, 1, 1, 1, 1, 2, 2, 0, 1, 2]


def sampler(groups=GROUPS, weights=(1, 1, 1), size=4, **options):
    return lambda: MixtureSampler(groups, list(weights), size, **options)


def stream(*sources, **options):
    return lambda: next(iter(MixtureStream([*sources], [1] * len(sources), 4, **options)))


def state_of(count):
    return MixtureStream([[number] for number in range(count)], [1] * count, 4).state_dict()


def loaded(state):
    return lambda: MixtureStream([[1]], [1], 4).load_state_dict(state)


KEYS = "expected the keys ['ahead', 'batch', 'seed', 'streams', 'taken', 'turns']"
ITERABLE = "expected an iterable that can begin again, or a function that returns one, got"
MESSAGES = {
    "ValueError: groups: expected shape (n,), one source a sample, got (0,)": sampler([], [1]),
    "TypeError: groups: expected whole numbers, got torch.float32": sampler([0.0, 1.0], [1, 1]),
    "ValueError: groups: expected numbers from 0, got -1": sampler([0, -1], [1, 1]),
    "ValueError: weights: expected one for each of 3 sources, got 2": sampler(weights=[1, 1]),
    "ValueError: weights[1]: expected a finite number >= 0, got -1.0": sampler(weights=[1, -1, 1]),
    "ValueError: weights[3]: expected 0 for a source without samples, got 2.0": sampler(weights=[1, 1, 1, 2]),
    "ValueError: weights: expected at least one above 0, got zeros": sampler(weights=[0, 0, 0]),
    "ValueError: fixed: expected sources below 3, got 3": sampler(fixed={3: 1}),
    "TypeError: fixed[2]: expected a whole number >= 0, got 0.5": sampler(weights=[1, 1], fixed={2: 0.5}),
    "ValueError: fixed: expected fewer samples than a batch has, 4, got 4": sampler(
        weights=[1, 1], fixed={2: 4}
    ),
    "ValueError: batch_size: expected a whole number >= 1, got 0": sampler(size=0),
    "ValueError: rank: expected a number below replicas=2, got 2": sampler(replicas=2, rank=2),
    "ValueError: batches: expected a number from 0 to 0, as many as were drawn, got 1": (
        lambda: sampler()().state_dict(batches=1)
    ),
    "ValueError: state: expected the keys ['ahead', 'batch', 'seed', 'taken'], got []": (
        lambda: sampler()().load_state_dict({})
    ),
    f"TypeError: sources[1]: {ITERABLE} generator": stream([1], (k for k in range(3))),
    f"TypeError: sources[0]: {ITERABLE} int": stream(1),
    "ValueError: sources[0]: expected an item at least, each time it is iterated, got none": stream([]),
    "TypeError: source: expected items that are mappings, which take a key, got int": stream(
        [1], source="source"
    ),
    "ValueError: source: expected a key that items do not have, got 'x'": stream([{"x": 1}], source="x"),
    f"ValueError: state: {KEYS}, got []": loaded({}),
    "ValueError: state['turns']: expected 1 sources, got 2": loaded(state_of(2)),
}
