"""The law of replicas."""

import torch

from linbench.engine.layer_under_test import LayerUnderTest, UndeclaredError, difference
from linbench.engine.stack import Stack
from linbench.experiments.loading import describe_error
from linbench.models.backbone import Backbone, Layer
from linbench.verify.laws import Found, law

SEEDS = (0, 1)


@law("replicas", place=11)
@torch.no_grad()
def replicas(subject: LayerUnderTest) -> Found:
    """Trained as replicas in one program it computes what it computes alone.

    Where it cannot be stacked, runs go one after another.
    """
    tokens = torch.randint(0, 16, (len(SEEDS), 3, 9), generator=torch.Generator().manual_seed(0))
    places = torch.arange(9).expand(len(SEEDS), 3, -1)
    models = [_model(subject, seed) for seed in SEEDS]
    alone = torch.stack([model(tokens[i], places[i]) for i, model in enumerate(models)])
    try:
        together = Stack.of(models)(tokens, places)
    except Exception as error:
        raise UndeclaredError(
            f"cannot be stacked, so runs go one after another: {describe_error(error)}"
        ) from None
    moved = difference(together, alone)
    return moved <= subject.limit(1e-9), f"stackable, differs by {moved:.1e}"


def _model(subject: LayerUnderTest, seed: int) -> Backbone:
    """Return a model of one layer, with the weights that the subject has for a seed."""
    settings = subject.cell.model.backbone.model_copy(update={"layers": 1})
    layer = Layer(subject.cls, subject.layer.settings)
    model = Backbone(settings, [layer], subject.cell.task.io, seed=seed).to(subject.dtype).eval()
    model.mixers[0].load_state_dict(subject.build(seed=seed).state_dict())
    return model
