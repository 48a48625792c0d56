"""TD-MPC2 against stable-worldmodel's own, in float64; the goals, rewards and values that it learns, against their
closed forms."""

from __future__ import annotations

import copy
import random
from types import SimpleNamespace

import pytest
import torch
from worlds.random_worlds import randomize

from leplanner.core.actions import ActionSpec
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds import World, WorldSpec
from leplanner.worlds.tdmpc2 import objective as objective_module
from leplanner.worlds.tdmpc2.layers import RunningScale, SimNorm, TwoHot, last_linear, mlp, squashed_gaussian
from leplanner.worlds.tdmpc2.model import TDMPC2, CNNConfig, TDMPC2Config
from leplanner.worlds.tdmpc2.objective import TDMPC2Objective, draw_goals, goal_rewards, value_targets

SIZES = TDMPC2Config(CNNConfig(frame_size=64), block_dim=10, latent=32, mlp=48, critic_dropout=0.0)
BATCH = 6


class Settings(dict):
    """What stable-worldmodel reads its configuration from: attributes, and `get`."""

    __getattr__ = dict.__getitem__


def settings(config: TDMPC2Config, objective: TDMPC2Objective) -> Settings:
    wm = Settings(
        encoding={"pixels": config.latent}, mlp_dim=config.mlp, simnorm_dim=config.group, num_q=config.critics,
        num_bins=config.bins, vmin=-10.0, vmax=10.0, tau=objective.follow_rate, discount=config.discount,
        uncertainty_penalty=config.disagreement, horizon=config.train_blocks, rho=objective.rho,
        entropy_coef=objective.entropy_weight, consistency_coef=objective.consistency_weight,
        reward_coef=objective.reward_weight, value_coef=objective.value_weight,
    )  # fmt: skip
    return Settings(wm=wm, action_dim=config.block_dim, image_size=config.frame_size)


CFG = settings(SIZES, TDMPC2Objective())


@pytest.fixture(scope="module")
def swm():
    return import_swm("stable_worldmodel.wm.tdmpc2.tdmpc2"), import_swm("stable_worldmodel.wm.tdmpc2.module")


@pytest.fixture
def pair(swm):
    """The reference and ours with the same float64 weights. The reference knows no goal: ours does not look at it."""
    theirs, ours = swm[0].TDMPC2(CFG).double().eval(), TDMPC2(SIZES).double().eval()
    randomize(theirs, scale=0.3)
    theirs.scale.float().value.fill_(3.0)  # it knows no other format
    parts = {"encoder": "cnn", "project": "pixel_encoder", "dynamics": "dynamics", "reward": "reward"}
    parts |= {"policy": "pi", "critics": "qs", "target_critics": "target_qs", "scale": "scale"}
    for mine, other in parts.items():
        module, source = getattr(ours, mine), getattr(theirs, other)
        pairs = list(zip(module.state_dict().values(), source.state_dict().values(), strict=True))
        for weight, known in pairs:
            if weight.shape == known.shape:
                weight.copy_(known)
            else:  # a first layer, over [latent, goal, block]
                size = SIZES.latent
                weight.zero_()
                weight[:, :size] = known[:, :size]
                weight[:, 2 * size :] = known[:, size:]
    return theirs, ours


def test_its_parts_are_the_references(swm):
    _, module = swm
    torch.manual_seed(0)
    x = torch.randn(7, 24, dtype=torch.float64)
    norm = SimNorm(8)
    assert torch.equal(norm(x), module.SimNorm(CFG)(x))
    for ending in (None, norm):
        theirs = module.mlp(24, 32, 16, act=None if ending is None else module.SimNorm(CFG)).double()
        ours = mlp(24, 32, 16, ending).double()
        for weight, known in zip(ours.parameters(), theirs.parameters(), strict=True):
            weight.data.copy_(torch.randn_like(known))
            known.data.copy_(weight)
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-12, atol=1e-12)


def test_numbers_as_classes_are_the_references(swm):
    _, module = swm
    two_hot = TwoHot()
    x = torch.cat([torch.linspace(-30, 30, 200, dtype=torch.float64), torch.tensor([0.0, -1.0, -1e9])])
    torch.testing.assert_close(two_hot.encode(x), module.two_hot(x, CFG), rtol=1e-9, atol=1e-9)
    logits = torch.randn(50, 101, dtype=torch.float64)
    # the reference's points are float32
    torch.testing.assert_close(two_hot.decode(logits), module.two_hot_inv(logits, CFG)[:, 0], rtol=1e-5, atol=1e-5)
    numbers = torch.linspace(-20, 20, 81, dtype=torch.float64)
    certain = two_hot.encode(numbers).log().clamp(min=-1e3)
    torch.testing.assert_close(two_hot.decode(certain), numbers, rtol=1e-9, atol=1e-9)
    top = two_hot.encode(torch.tensor([1e9]))
    assert top.argmax() == 100  # where the reference has the last point but one


def test_the_running_scale_is_the_references(swm):
    _, module = swm
    theirs, ours = module.RunningScale(0.01), RunningScale()
    values = torch.linspace(-3, 2, 41)
    for _ in range(3):
        theirs.update(values)
        ours.update(values, 0.01)
    torch.testing.assert_close(ours(values), theirs(values))
    assert ours.value.item() == pytest.approx(4.5 + 5.5 * 0.99**3)
    for _ in range(2):
        ours.update(values / 100, 1.0)
    assert ours.value.item() == 1.0  # less does not count as a spread


def test_the_policy_is_the_references(swm):
    _, module = swm
    raw, noise = (torch.randn(9, size, dtype=torch.float64) for size in (12, 6))
    mean, log_std = raw[:, :6], module.log_std(raw[:, 6:])
    density = module.gaussian_logprob(noise, log_std)
    _, expected, log_density = module.squash(mean, mean + noise * log_std.exp(), density)
    actions, actual = squashed_gaussian(raw, noise)
    torch.testing.assert_close(actions, expected)
    torch.testing.assert_close(actual, log_density[:, 0], rtol=1e-6, atol=1e-6)


def test_encoder_rollout_and_return_are_the_references(pair):
    theirs, ours = pair
    frames = torch.randn(3, 3, 64, 64, dtype=torch.float64)
    plans = torch.rand(3, 4, SIZES.block_dim, dtype=torch.float64) * 2 - 1
    latents = ours.encode(frames)
    torch.testing.assert_close(latents, theirs.encode({"pixels": frames}), rtol=1e-10, atol=1e-12)
    none = plans[:, :0]
    imagined, z = ours.rollout(latents.unsqueeze(1), none, plans), latents
    for step in range(4):
        z, _ = theirs(z, plans[:, step])
        torch.testing.assert_close(imagined[:, step], z, rtol=1e-10, atol=1e-12)
    for model in (theirs, ours):  # rewards below -1: the reference does not end at the goal, and none is reached
        last_linear(model.reward).bias.data[46:] -= 30
    expected = -theirs.get_cost({"pixels": frames.unsqueeze(1)}, plans.unsqueeze(1))[:, 0]
    actual = ours.plan_return(latents.unsqueeze(1), none, plans, torch.randn_like(latents))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_its_losses_are_the_references_where_no_goal_is_reached(pair, swm, monkeypatch):
    """Every reward is -1 then. Noise is left out, and all critics are alike: each side draws from its own generator."""
    theirs, ours = pair
    for critics in (theirs.qs, theirs.target_qs, ours.critics, ours.target_critics):
        for critic in critics[1:]:
            critic.load_state_dict(critics[0].state_dict())
    for critics, share in (
        (theirs.qs, 30.0),
        (ours.critics, 30.0),
        (theirs.target_qs, 9.0),
        (ours.target_critics, 9.0),
    ):
        for critic in critics:
            last_linear(critic).weight.data.mul_(share)  # values of all sizes
    for part in theirs.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    frames = torch.randn(BATCH, 6, 3, 64, 64, dtype=torch.float64)
    blocks = torch.rand(BATCH, 5, SIZES.block_dim, dtype=torch.float64) * 2 - 1
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    monkeypatch.setattr(objective_module, "standard_normal", lambda shape, generator, like: like.new_zeros(shape))
    monkeypatch.setattr(random, "sample", lambda values, count: [0, 1])
    batch = {"pixels": frames, "action": torch.cat([blocks, blocks[:, :1]], dim=1)}
    batch["reward"] = torch.full((BATCH, 6), -1.0, dtype=torch.float64)
    logged: dict[str, torch.Tensor] = {}
    context = SimpleNamespace(model=theirs.train(), log_dict=lambda terms, **_: logged.update(terms))
    swm[0].tdmpc2_forward(context, batch, "train", CFG)
    latents = ours.train().encode(frames.flatten(0, 1)).unflatten(0, (BATCH, 6))
    terms = ours.losses(latents, blocks, TDMPC2Objective(other_goal_prob=1.0), torch.Generator(), lambda x: x)
    names = {"loss": "loss", "consistency": "consist", "reward": "reward", "value": "value", "policy": "policy"}
    for mine, other in names.items():
        torch.testing.assert_close(terms[mine], logged[f"train/{other}"], rtol=1e-5, atol=1e-6)
    assert abs(ours.scale.value.item() - 3.0) > 1e-3
    torch.testing.assert_close(ours.scale.value.double(), theirs.scale.value.double(), rtol=1e-5, atol=1e-6)
    logged["train/loss"].backward()
    terms["loss"].backward()
    for mine, other in ((ours.critics, theirs.qs), (ours.encoder, theirs.cnn), (ours.dynamics, theirs.dynamics)):
        for weight, known in zip(mine.parameters(), other.parameters(), strict=True):
            gradient = weight.grad if weight.shape == known.shape else weight.grad[:, : SIZES.latent]
            expected = known.grad if weight.shape == known.shape else known.grad[:, : SIZES.latent]
            torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    for mine, other in zip(ours.target_critics.parameters(), theirs.target_qs.parameters(), strict=True):
        known = other if mine.shape == other.shape else other[:, : SIZES.latent]
        torch.testing.assert_close(mine if mine.shape == other.shape else mine[:, : SIZES.latent], known)


def numbered_latents(batch: int, frames: int) -> torch.Tensor:
    """(B, T, 1) that name their own place."""
    return torch.arange(batch * frames, dtype=torch.float64).view(batch, frames, 1)


def test_goals_are_later_current_or_of_another_window():
    latents, generator = numbered_latents(400, 6), torch.Generator().manual_seed(0)
    row = torch.arange(400).unsqueeze(1)
    now = torch.arange(5)

    def drawn(**shares):
        place = draw_goals(latents, TDMPC2Objective(**shares), generator)[..., 0].long()
        return place // 6, place % 6

    goal_row, frame = drawn(other_goal_prob=0.0, current_goal_prob=0.0)
    assert (goal_row == row).all()
    assert (frame > now).all()
    assert all((frame[:, 0] == later).float().mean() > 0.1 for later in range(1, 6))  # uniform: a fifth each
    goal_row, frame = drawn(other_goal_prob=0.0, current_goal_prob=1.0)
    assert (goal_row == row).all()
    assert (frame == now).all()
    goal_row, _ = drawn(other_goal_prob=1.0)
    assert (goal_row != row).all()
    goal_row, frame = drawn()
    assert 0.2 < (goal_row != row).float().mean() < 0.4
    assert (draw_goals(latents[:1], TDMPC2Objective(other_goal_prob=1.0), generator) < 6).all()  # there is no other


def test_rewards_and_value_targets_by_hand(monkeypatch):
    model = TDMPC2(SIZES).double().eval()
    following = torch.eye(32, dtype=torch.float64)[:3].unsqueeze(0)  # (1, 3, D)
    goals = following[:, 1:2].expand(1, 3, 32)
    rewards = goal_rewards(following, goals)
    assert rewards.tolist() == [[-1.0, 0.0, -1.0]]
    monkeypatch.setattr(model, "target_values", lambda *_: torch.full((1, 3), -4.0, dtype=torch.float64))
    targets = value_targets(model, following, goals, rewards, torch.Generator())
    # -1 + 0.95 * -4 where it goes on, 0 where the goal is reached
    torch.testing.assert_close(targets, torch.tensor([[-4.8, 0.0, -4.8]], dtype=torch.float64))


def test_a_target_is_the_lesser_of_two_critics():
    model = TDMPC2(SIZES).eval()
    randomize(model, 0.3)
    latents, blocks, goals = torch.randn(4, 32), torch.randn(4, 10), torch.randn(4, 32)
    each = [model.target_values(latents, blocks, goals, [i]) for i in (0, 3)]
    assert torch.equal(model.target_values(latents, blocks, goals, [0, 3]), torch.minimum(*each))
    assert not torch.allclose(*each)


def losses_of(model: TDMPC2, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn(8, 6, SIZES.latent, generator=generator).softmax(-1)
    blocks = torch.rand(8, 5, SIZES.block_dim, generator=generator) * 2 - 1
    return model.losses(latents, blocks, TDMPC2Objective(), generator, lambda x: x)


def test_each_loss_trains_its_own_part():
    model = TDMPC2(SIZES).train()
    randomize(model, 0.3)
    trained = {"policy": {"policy"}, "value": {"critics", "dynamics"}, "reward": {"reward", "dynamics"}}
    trained |= {"consistency": {"dynamics"}}
    for term, parts in trained.items():
        model.zero_grad(set_to_none=True)
        losses_of(model)[term].backward()
        reached = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
        assert reached == parts


def test_targets_and_scale_move_in_training_alone():
    model = TDMPC2(SIZES)
    randomize(model, 0.3)
    before = copy.deepcopy(model.state_dict())
    model.eval()
    with torch.no_grad():
        first, again = losses_of(model), losses_of(model)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    losses_of(model.train())
    moved = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"target_critics", "scale"}
    name = "0.0.weight"
    expected = before[f"target_critics.{name}"].lerp(before[f"critics.{name}"], 0.01)
    torch.testing.assert_close(model.target_critics.state_dict()[name], expected)


def test_values_learn_how_many_blocks_are_left():
    """A ring of 4 places, walked one place a block whatever the block is: the value of a goal k blocks ahead is
    -(1 - gamma^(k-1)) / (1 - gamma), and so is the return of any plan, also of one that goes past it."""
    torch.manual_seed(0)
    config = TDMPC2Config(CNNConfig(frame_size=64), block_dim=1, latent=8, mlp=64, critics=2, critic_dropout=0.0)
    model, objective = TDMPC2(config), TDMPC2Objective(rho=1.0, follow_rate=0.3, value_weight=1.0, reward_weight=1.0)
    places, generator = torch.eye(8), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(200):
        visited = (torch.randint(0, 4, (16, 1), generator=generator) + torch.arange(6)) % 4
        blocks = torch.rand(16, 5, 1, generator=generator) * 2 - 1
        optimizer.zero_grad()
        model.train().losses(places[visited], blocks, objective, generator, lambda batch: batch)["loss"].backward()
        optimizer.step()
    ahead = torch.arange(1, 5)
    start, goals = places[:1].expand(4, -1), places[ahead % 4]
    expected = -(1 - config.discount ** (ahead - 1)) / (1 - config.discount)
    assert expected.tolist() == pytest.approx([0.0, -1.0, -1.95, -2.8525], abs=1e-5)
    none = torch.zeros(4, 0, 1)
    with torch.no_grad():
        values = model.eval().two_hot.decode(model.critic_logits(start, torch.zeros(4, 1), goals))
        torch.testing.assert_close(values.mean(dim=0), expected, atol=0.2, rtol=0.0)
        for length in (1, 2, 3):
            returns = model.plan_return(start.unsqueeze(1), none, torch.zeros(4, length, 1), goals)
            torch.testing.assert_close(returns, expected, atol=0.4, rtol=0.0)


def test_blocks_are_seen_in_the_units_of_the_box():
    actions = ActionSpec((0.1, 0.2), (0.5, 0.6), (-1.0, -2.0), (1.0, 4.0), block=5)
    world = World.build(WorldSpec("tdmpc2", "tworoom", SIZES, actions))
    randomize(world.model, 0.3)
    low, high = actions.blocks(torch.tensor([[[-1.0, -2.0]] * 5, [[1.0, 4.0]] * 5]).numpy())
    torch.testing.assert_close(world.model.to_box(torch.as_tensor(low)), -torch.ones(1, 10))
    torch.testing.assert_close(world.model.to_box(torch.as_tensor(high)), torch.ones(1, 10))
    problem = torch.rand(64, 1, 32), torch.zeros(64, 0, 10), torch.rand(64, 32)
    plans = world.propose_plan(*problem, 3.0 * torch.randn(64, 3, 10))
    outside = (plans - actions.center).abs() - actions.scale
    assert plans.shape == (64, 3, 10)
    assert outside.max() <= 1e-5
    assert outside.max() > -0.1  # the policy reaches the box's sides


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="not groups of 8"):
        TDMPC2Config(latent=12)
    with pytest.raises(ValueError, match="starts from one frame"):
        TDMPC2Config(context=3)
    with pytest.raises(ValueError, match="two critics"):
        TDMPC2Config(critics=1)
    with pytest.raises(ValueError, match="too small for convolutions"):
        TDMPC2(TDMPC2Config(CNNConfig(frame_size=32)))
