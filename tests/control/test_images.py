"""Goals and frames as people have them become the same frames; what is ambiguous is refused with its cure."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import leplanner as lp
from leplanner.control.images import read_pictures
from leplanner.planner.engines import random_problem


@pytest.fixture
def picture(rng) -> np.ndarray:
    return rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)


def test_every_form_of_a_picture_is_the_same_frame(picture, tmp_path):
    Image.fromarray(picture).save(tmp_path / "goal.png")
    forms = [
        picture,
        Image.fromarray(picture),
        tmp_path / "goal.png",
        str(tmp_path / "goal.png"),
        picture.transpose(2, 0, 1),
        torch.as_tensor(picture),
        torch.as_tensor(picture).permute(2, 0, 1),
        picture / 255.0,
        torch.as_tensor(picture).permute(2, 0, 1).float() / 255.0,
    ]
    for form in forms:
        frames, single = read_pictures(form, 64)
        assert single
        assert np.array_equal(frames, picture[None]), type(form)
    batch, single = read_pictures(np.stack([picture, picture]).transpose(0, 3, 1, 2), 64)
    assert not single
    assert np.array_equal(batch, np.stack([picture, picture]))


def test_resizing_averages_where_it_shrinks(picture):
    doubled = picture.repeat(2, axis=0).repeat(2, axis=1)
    assert np.array_equal(read_pictures(doubled, 64, resize=True)[0][0], picture)
    assert read_pictures(picture, 96, resize=True)[0].shape == (1, 96, 96, 3)
    with pytest.raises(ValueError, match=r"64 x 64 pixels; got 128 x 128.*resize=True"):
        read_pictures(doubled, 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p[..., 0], "three color channels"),
        (lambda p: np.concatenate([p, p[..., :1]], axis=-1), "three color channels.*RGB"),
        (lambda p: p[:3, :, :].transpose(0, 1, 2), "either end could hold the colors"),
        (lambda p: p.astype(np.float32), "floats from 0 to 1; got float32 from"),
        (lambda p: p / 127.5 - 1.0, "Undo a normalization"),
        (lambda p: p.astype(np.int64), "write 0 to 255 as uint8"),
        (lambda p: p[:, :48], "Crop them first"),
        (lambda p: "nowhere.png", "There is no picture nowhere.png"),
    ],
)
def test_what_is_ambiguous_or_wrong_is_refused_with_its_cure(change, message, picture):
    with pytest.raises(ValueError, match=message):
        read_pictures(change(picture), 64, resize=True)


def test_a_file_that_is_no_picture_is_refused(tmp_path):
    (tmp_path / "goal.png").write_text("not one")
    with pytest.raises(ValueError, match="not a picture that Pillow can read"):
        read_pictures(tmp_path / "goal.png", 64)


def test_a_controller_takes_pictures_of_every_form(picture, rng):
    planner = lp.load("tworoom", engine="eager", resize=True)
    frame = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    expected = planner.controller(picture).act(frame)
    large = frame.repeat(2, axis=0).repeat(2, axis=1)
    for goal, seen in ((Image.fromarray(picture), large), (torch.as_tensor(picture).permute(2, 0, 1), frame / 255.0)):
        np.testing.assert_allclose(planner.controller(goal).act(seen), expected, atol=1e-5)
    latent = planner.encode(picture[None])
    np.testing.assert_allclose(planner.controller(latent[0]).act(frame), expected, atol=1e-5)
    with pytest.raises(ValueError, match=r"must have the shape \(128,\)"):
        planner.controller(latent[0, :7])


def test_more_blocks_than_a_plan_has_are_refused_when_the_controller_is_made(picture):
    planner = lp.load("tworoom", engine="eager")
    with pytest.raises(ValueError, match="from 1 to 5 blocks, the length of a plan; got 9"):
        planner.controller(picture, execute=9)


def test_objects_say_what_they_are(picture, tworoom):
    planner = lp.load("tworoom", engine="eager")
    assert "tworoom: lewm world" in repr(planner)
    assert "lewm for tworoom: frames of 64 px -> latents (128,)" in repr(planner.world)
    controller = planner.controller(picture)
    controller.act(picture)
    assert "by leplanner-reuse: 1 at step 1, 1 decisions" in repr(controller)
    problem = random_problem(planner.model, batch=2)
    assert repr(problem) == "PlanProblem(context=(2, 3, 128), past_blocks=(2, 2, 10), goal=(2, 128))"
    assert repr(planner.plan(problem)) == "Plan(blocks=(2, 5, 10), latents=(2, 5, 128), distances=(2, 5))"
    assert "20 of 180 rows, 5 actions of 2 numbers a row" in repr(tworoom)
