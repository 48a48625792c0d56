"""Latents of tokens, four of eight numbers: everything that works over vectors works over them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from support import CPU, synthetic_episodes
from torch import nn

import leplanner as lp
from leplanner.baselines.learned import BaselineTrainConfig, load_baseline, train_baseline
from leplanner.control.controller import Controller
from leplanner.control.methods import METHODS, MethodInputs
from leplanner.core.actions import ActionSpec
from leplanner.core.config import changed
from leplanner.data.cache import LatentCache
from leplanner.density.train import DensityTrainConfig, train_density
from leplanner.planner.checks import check_dynamics, check_planner
from leplanner.planner.engines import random_problem
from leplanner.planner.model import PlannerConfig
from leplanner.planner.planner import Planner
from leplanner.planner.train import PlannerTrainConfig, train_planner
from leplanner.training.loggers import read_validations
from leplanner.worlds.base import FAMILIES, World, WorldFamily, WorldSpec

TOKENS = (4, 8)
SHAPE = PlannerConfig(horizon=3, refinements=2, width=32, depth=1, heads=4, dropout=0.0)


@dataclass(frozen=True)
class TokenSizes:
    block_dim: int = 4
    frame_size: int = 8
    context: int = 2
    latent_shape: tuple[int, ...] = TOKENS


class TokenModel(nn.Module):
    """A token for each quarter of the frame; an action moves tokens, which attract each other."""

    def __init__(self, config: TokenSizes):
        super().__init__()
        self.config = config
        self.encoder = nn.Linear(3 * 16, 8)
        self.channels, self.tokens = nn.Linear(8, 8), nn.Linear(4, 4)
        self.speed, self.push = nn.Linear(8, 8), nn.Linear(config.block_dim, 32)

    def encode(self, frames):
        quarters = frames.unflatten(2, (2, 4)).unflatten(4, (2, 4)).permute(0, 2, 4, 1, 3, 5)
        return self.encoder(quarters.reshape(len(frames), 4, -1))

    def rollout(self, context, past_blocks, plan):
        before, now, latents = context[:, -2], context[:, -1], []
        for block in plan.unbind(1):
            mixed = self.channels(now) + self.tokens(now.transpose(1, 2)).transpose(1, 2)
            push = self.push(block).unflatten(-1, TOKENS)
            before, now = now, 0.9 * now + 0.5 * torch.tanh(mixed + push + self.speed(now - before))
            latents.append(now)
        return torch.stack(latents, dim=1)

    def distance(self, latents, goal):
        """The first token counts most: a measure of the family's own."""
        weights = torch.tensor([4.0, 2.0, 1.0, 1.0])
        return ((latents - goal.unsqueeze(1)).square().mean(dim=-1) * weights).sum(dim=-1)

    def encoder_parts(self):
        return {"encoder": self.encoder}


FAMILY = WorldFamily(
    name="tokens",
    title="Tokens",
    config=TokenSizes,
    build=TokenModel,
    network=lambda scale, block_dim, frame_size: TokenSizes(block_dim, frame_size),
    objective=lambda scale: None,
)


@pytest.fixture(scope="module", autouse=True)
def family():
    """Known to this module's tests alone."""
    FAMILIES.names()  # complete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FAMILIES, "_items", dict(FAMILIES._items))
        yield FAMILIES.register(FAMILY)


@pytest.fixture(scope="module")
def world(family) -> World:
    torch.manual_seed(0)
    actions = ActionSpec((0.1, 0.0), (0.5, 0.6), (-1.0, -1.0), (1.0, 1.0), block=2)
    return World.build(WorldSpec("tokens", "tworoom", TokenSizes(), actions))


@pytest.fixture(scope="module")
def cache(world) -> LatentCache:
    """Random blocks from random frames, and where the world itself says that they lead."""
    rng, actions, rows = np.random.default_rng(0), world.spec.actions, 12
    episodes = synthetic_episodes(rng, lengths=(rows,) * 60, steps_per_row=2)
    drawn = np.where(np.isnan(episodes.actions), np.nan, rng.uniform(-1, 1, episodes.actions.shape))
    episodes = replace(episodes, actions=drawn.astype(np.float32))
    blocks = torch.from_numpy(actions.blocks(episodes.actions.reshape(60, 2 * rows, 2))[:, :-1])
    first = world.encode(episodes.frames[episodes.starts])
    context = torch.stack([first, first], dim=1)
    after = world.rollout(context, torch.zeros(60, 1, 4), blocks)
    latents = torch.cat([first.unsqueeze(1), after], dim=1).flatten(0, 1)
    return LatentCache(latents.half().numpy(), episodes, world.encoder_digest, "synthetic")


@pytest.fixture(scope="module")
def density(world, cache, tmp_path_factory):
    config = changed(DensityTrainConfig(), steps=20, batch=32, width=16, components=2, validate_every=10)
    return train_density(world, cache, config, tmp_path_factory.mktemp("density"), CPU)


@pytest.fixture(scope="module")
def folder(world, cache, density, tmp_path_factory):
    """Of a planner, trained for as long as a test can wait, with every term of the loss."""
    terms = {"tracking_weight": 0.1, "smooth_weight": 0.01, "perturb_prob": 0.25, "far_goal_prob": 0.2}
    config = PlannerTrainConfig(curriculum="0:3", engine="plain", **terms)
    config = changed(config, steps=60, batch=32, learning_rate=3e-3, precision="fp32", validate_every=20)
    out = tmp_path_factory.mktemp("planner")
    train_planner(world, cache, density, SHAPE, config, out, CPU)
    return out


@pytest.fixture(scope="module")
def planner(folder) -> lp.LoadedPlanner:
    return lp.load(folder, engine="eager")


def test_a_planner_over_tokens_trains_and_is_stored(folder, planner):
    history = read_validations(folder)
    assert history[-1]["held_out_arrival"][-1] < 0.9 * history[0]["held_out_arrival"][-1]
    assert planner.model.latent.shape == planner.world.latent.shape == TOKENS
    assert planner.density is not None


def test_contracts_hold_over_tokens(planner):
    problem = random_problem(planner.model, batch=5)
    check_planner(planner, problem)
    check_dynamics(planner.world, problem.context, problem.past_blocks, planner.plan(problem).blocks)


def test_the_planner_reads_every_token(planner):
    """The draft knows a goal only through the reader; later plans also through their distances."""
    problem = random_problem(planner.model, batch=2)
    draft = planner.plan(problem, record="trace").plans[0].blocks
    for token in range(4):
        goal = problem.goal.clone()
        goal[:, token] += 1.0
        moved = planner.plan(replace(problem, goal=goal), record="trace").plans[0].blocks
        assert (moved - draft).abs().max() > 1e-4, token


@pytest.mark.parametrize(
    "engine", ["onnx", pytest.param("compiled", marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.filterwarnings("ignore")  # torch's own, on compiling
def test_engines_agree_over_tokens(planner, engine, batch, rng):
    other = Planner(planner.world, planner.model, engine=engine)
    problem = random_problem(planner.model, batch=batch)
    expected, actual = planner.plan(problem), other.plan(problem)
    report = other.engine_report()
    assert report.engine == engine
    tolerance = 1e-4 if report.precision == "fp32" else 1e-2
    for name in ("blocks", "latents", "distances"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), atol=tolerance, rtol=tolerance)
    blocks = expected.blocks.flip(1)
    imagined = planner.world.rollout(problem.context, problem.past_blocks, blocks)
    torch.testing.assert_close(other.imagine(problem, blocks), imagined, atol=tolerance, rtol=tolerance)
    frames = rng.integers(0, 256, (batch, 8, 8, 3), dtype=np.uint8)
    torch.testing.assert_close(other.encode(frames), planner.world.encode(frames), atol=1e-4, rtol=1e-4)


def test_auto_traces_a_token_world(planner):
    assert Planner(planner.world, planner.model).engine_report().engine == "onnx"


def test_a_density_over_tokens_scores_blocks_and_depends_on_every_token(density):
    context, blocks = torch.randn(5, 3, 2, *TOKENS), torch.randn(5, 3, 4)
    scores = density.score(context, blocks)
    assert scores.shape == (5, 3)
    assert scores.isfinite().all()
    context.requires_grad_()
    (gradient,) = torch.autograd.grad(density.score(context, blocks).sum(), context)
    assert (gradient.abs().sum(dim=-1) > 0).all()


@pytest.mark.parametrize("name", ["gcidm", "gcivl"])
def test_a_baseline_over_tokens_trains_and_is_stored(name, world, cache, tmp_path):
    config = changed(BaselineTrainConfig(), steps=5, batch=16, validate_every=5)
    trained = train_baseline(name, world, cache, config, tmp_path / name, CPU)
    stored = load_baseline(tmp_path / name, world)
    assert stored.digest == trained.digest
    controller = Controller(stored, world, budget=20)
    frames = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    controller.reset(frames[4])
    actions = np.stack([controller.act(frame) for frame in frames])
    assert actions.shape == (5, 2)
    assert np.abs(actions).max() <= 1


def test_search_over_tokens_improves_on_the_first_plan(planner):
    problem = random_problem(planner.model, batch=2)
    inputs = MethodInputs(planner, budget=20)
    search = METHODS.get("gradient").make(inputs)(None)
    plans = search.plan(problem, (0, 1))
    with torch.no_grad():
        ends, still = (
            planner.world.distance(planner.imagine(problem, blocks), problem.goal)[:, -1]
            for blocks in (plans, torch.zeros_like(plans))
        )
    assert (ends < still).all()


@pytest.mark.parametrize("reuse", [True, False])
def test_a_controller_acts_over_tokens(planner, reuse, rng):
    """Towards an image, and towards a latent or a batch of them, which have two and three axes."""
    frames = rng.integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    latent = planner.encode(frames[8:])[0]
    by_image, by_latent = (planner.controller(goal, reuse=reuse) for goal in (frames[8], latent))
    batch = planner.controller(torch.stack([latent, -latent]), reuse=reuse)
    for frame in frames[:8]:
        action = by_image.act(frame)
        assert action.shape == (2,)
        np.testing.assert_allclose(by_latent.act(frame), action, atol=1e-5)
        np.testing.assert_allclose(batch.act(np.stack([frame, frame]))[0], action, atol=1e-5)
