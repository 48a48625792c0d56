"""The scales: what to collect, and how large a world and a planner to train, for each task. A scale is a function, never an `if`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..baselines.learned import BaselineTrainConfig
from ..data.collect import CollectConfig
from ..density.train import DensityTrainConfig
from ..diagnostics.decoder import DecoderTrainConfig
from ..planner.model import PlannerConfig
from ..planner.train import PlannerTrainConfig
from ..tasks import get_task
from ..world.encoders import KeypointConfig, ViTConfig
from ..world.lewm import LeWMConfig
from ..world.refine import RefineConfig
from ..world.train import WorldTrainConfig

BLOCK = 5  # f: environment actions in a block, at every scale


@dataclass(frozen=True)
class Scale:
    collect: CollectConfig
    model: LeWMConfig
    train: WorldTrainConfig
    refine: RefineConfig
    density: DensityTrainConfig
    planner: PlannerConfig  # its latent, block and context sizes are the world's
    planner_train: PlannerTrainConfig
    baselines: BaselineTrainConfig
    decoder_train: DecoderTrainConfig
    practice_rounds: int = 0  # of playing, and of training world and planner on what was played
    practice_episodes: int = 0  # a round
    practised_refine_steps: int = 0  # a round
    practised_steps: int = 0  # of the planner, a round

    @property
    def practised_train(self) -> PlannerTrainConfig:
        """Of a planner that goes on from the one that practised: goals at all distances, and second attempts. By a lower peak, since
        the first one's undoes what was learned, and less bound to the data's way."""
        if not self.practice_rounds:
            return self.planner_train
        return replace(
            self.planner_train,
            steps=self.practised_steps,
            learning_rate=0.4 * self.planner_train.learning_rate,
            curriculum=f"0:{self.planner.horizon}",
            way_weight=self.planner_train.way_weight / 3,
            retry_share=0.15,
            start_share=0.5,
        )

    @property
    def practised_refine(self) -> RefineConfig:
        """Of a world that goes on: half of what it sees is what plans really did."""
        if not self.practice_rounds:
            return self.refine
        return replace(
            self.refine,
            steps=self.practised_refine_steps,
            learning_rate=0.6 * self.refine.learning_rate,
            horizon=f"0:2,0.3:{self.planner.horizon}",
            played_share=0.5,
        )

    @property
    def practice(self) -> CollectConfig:
        """Twice as long as the evaluation's goals are away: arriving, or going astray, and what comes after."""
        return replace(self.collect, episodes=self.practice_episodes or self.collect.episodes, steps=10 * BLOCK)

    def planner_for(self, world: LeWMConfig) -> PlannerConfig:
        return replace(self.planner, latent=world.latent, block_dim=world.block_dim, context=world.context)


def paper(task: str) -> Scale:
    """LeWM as released (ViT-tiny at 224 px, 18 M parameters) and the paper's planner (6.8 M); wants a GPU and the
    released datasets."""
    scale = Scale(
        collect=CollectConfig(task, episodes=10_000, steps=200, every=1, size=224, native_visuals=True),
        model=LeWMConfig(encoder=ViTConfig(), block_dim=BLOCK * get_task(task).action_dim),
        train=WorldTrainConfig(),
        refine=RefineConfig(),  # released worlds are used as they are
        density=DensityTrainConfig(),
        planner=PlannerConfig(),
        planner_train=PlannerTrainConfig(),
        baselines=BaselineTrainConfig(steps=100_000, batch=1024),
        decoder_train=DecoderTrainConfig(steps=50_000, batch=128),
    )
    return _PAPER.get(task, lambda scale: scale)(scale)


def _paper_tworoom(scale: Scale) -> Scale:
    return replace(scale, planner_train=replace(scale.planner_train, batch=32, learning_rate=1e-4))


_PAPER: dict[str, Callable[[Scale], Scale]] = {"tworoom": _paper_tworoom}


def compact(task: str) -> Scale:
    """A keypoint encoder and a small predictor: an hour or two for everything, on two CPU cores."""
    scale = Scale(
        collect=CollectConfig(task, episodes=3000, size=64),
        model=LeWMConfig(
            encoder=KeypointConfig(frame_size=64),
            block_dim=BLOCK * get_task(task).action_dim,
            latent=128,
            depth=3,
            heads=4,
            head_dim=32,
            mlp=512,
            projector=512,
            dropout=0.0,  # small and far from overfitting; dropout only blurs the prediction
        ),
        train=WorldTrainConfig(steps=2400, batch=64, learning_rate=5e-4, projections=256, half_weights=True),
        refine=RefineConfig(steps=8000, batch=128, horizon="0:1,0.6:2,0.85:5", half_weights=True),
        density=DensityTrainConfig(half_weights=True),
        planner=PlannerConfig(width=128, depth=2, heads=4, dropout=0.0),
        # fp32: what is learned at the end are distances of a thousandth of the start's
        planner_train=PlannerTrainConfig(steps=3000, batch=64, smooth_weight=3e-3, half_weights=True, precision="fp32"),
        baselines=BaselineTrainConfig(),
        decoder_train=DecoderTrainConfig(half_weights=True),
    )
    return _COMPACT[task](scale)


def _compact_tworoom(scale: Scale) -> Scale:
    # one dot on a floor plan: no convolution beyond the two that shrink the frame
    model = replace(scale.model, encoder=replace(scale.model.encoder, refine=0))
    planner_train = replace(scale.planner_train, steps=4500, way_weight=0.1, deviate_share=0.25, far_share=0.4)
    return replace(scale, model=model, train=replace(scale.train, steps=3200), planner_train=planner_train)


def _by_the_way(scale: Scale) -> PlannerTrainConfig:
    """For contact: shown the data's way, far goals come early. In bf16 where that is faster: distances are hundredths there, not
    thousandths, and a planner of twice the width takes as long as one in fp32."""
    return replace(
        scale.planner_train, curriculum="0:2,0.1:3,0.25:5", way_weight=0.3, deviate_share=0.25, precision="auto"
    )


def _compact_pusht(scale: Scale) -> Scale:
    return replace(
        scale,
        collect=replace(scale.collect, episodes=12_000),  # contact is learned from many pushes
        train=replace(scale.train, grounding=1.0),
        refine=replace(
            scale.refine, steps=5000, batch=256, learning_rate=2e-3, optimizer="muon", horizon="0:1,0.3:2,0.6:5"
        ),
        planner=replace(scale.planner, width=256, heads=8),
        planner_train=replace(_by_the_way(scale), steps=4500, far_share=0.4, learning_rate=1e-3, optimizer="muon"),
        practice_rounds=1,
        practice_episodes=9000,  # 5,400 by the planner, the rest corrections
        practised_refine_steps=3000,
        practised_steps=4500,
        decoder_train=replace(scale.decoder_train, steps=14_000),  # two shapes, and one of them turns
    )


def _compact_reacher(scale: Scale) -> Scale:
    return replace(
        scale,
        collect=replace(scale.collect, episodes=2600),
        train=replace(scale.train, grounding=1.0),
        planner_train=replace(scale.planner_train, steps=4000, learning_rate=1e-3, optimizer="muon"),
    )


def _compact_cube(scale: Scale) -> Scale:
    # the cube is small: more pixels
    return replace(
        scale,
        collect=replace(scale.collect, episodes=3000, size=96),
        model=replace(scale.model, encoder=replace(scale.model.encoder, frame_size=96)),
        train=replace(scale.train, steps=2000, grounding=1.0),
        refine=replace(
            scale.refine, steps=5000, batch=256, learning_rate=2e-3, optimizer="muon", horizon="0:1,0.3:2,0.6:5"
        ),
        planner=replace(scale.planner, width=256, heads=8),
        # few frames of a hard world: plans must stay near what the data did
        planner_train=replace(
            _by_the_way(scale), steps=5500, support_weight=0.3, far_share=0.3, learning_rate=1e-3, optimizer="muon"
        ),
    )


_COMPACT: dict[str, Callable[[Scale], Scale]] = {
    "tworoom": _compact_tworoom,
    "pusht": _compact_pusht,
    "reacher": _compact_reacher,
    "cube": _compact_cube,
}


def tiny(task: str) -> Scale:
    """Everything in a minute: for tests and for seeing the pipeline run, not for results."""
    scale = compact(task)
    encoder = KeypointConfig(frame_size=32, channels=(16, 32), refine=0, keypoints=16, width=64)
    model = replace(scale.model, encoder=encoder, latent=32, depth=1, heads=2, head_dim=16, mlp=64, projector=64)
    return Scale(
        collect=CollectConfig(task, episodes=48, steps=50, size=32),
        model=model,
        train=replace(scale.train, steps=200, batch=32, projections=64, learning_rate=2e-3, validate_every=50),
        refine=replace(scale.refine, steps=100, batch=32, validate_every=50),
        density=DensityTrainConfig(components=4, width=32, steps=100, batch=64, validate_every=50),
        planner=PlannerConfig(width=32, depth=1, heads=2, dropout=0.0),
        planner_train=PlannerTrainConfig(
            steps=100, batch=32, learning_rate=1e-3, validate_every=50, engine="plain", precision="fp32"
        ),
        baselines=BaselineTrainConfig(steps=50, batch=64, validate_every=25),
        decoder_train=DecoderTrainConfig(steps=100, batch=16, validate_every=50),
        practice_rounds=2 * min(scale.practice_rounds, 1),  # rounds go on from rounds: one would not show it
        practice_episodes=min(scale.practice_episodes, 16),
        practised_refine_steps=min(scale.practised_refine_steps, 100),
        practised_steps=min(scale.practised_steps, 100),
    )


SCALES: dict[str, Callable[[str], Scale]] = {"paper": paper, "compact": compact, "tiny": tiny}


def get_scale(scale: str, task: str) -> Scale:
    if scale not in SCALES:
        raise ValueError(f"Unknown scale {scale!r}. Known scales: {', '.join(SCALES)}.")
    return SCALES[scale](get_task(task).name)
