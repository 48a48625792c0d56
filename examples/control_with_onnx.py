"""Controls a dot with two ONNX files, numpy and ONNX Runtime; torch is not needed. The same controller as
`lp.load("tworoom").controller(goal)`. First: leplanner export tworoom --out DIR"""

import json
import sys

import numpy as np
import onnxruntime
from two_rooms import TwoRooms

encoder, planner = (onnxruntime.InferenceSession(f"{sys.argv[1]}/{name}.onnx") for name in ("encoder", "plan"))
facts = {name: json.loads(value) for name, value in planner.get_modelmeta().custom_metadata_map.items()}
mean, std, block = np.float32(facts["action_mean"]), np.float32(facts["action_std"]), facts["block"]


def encode(frame):
    return encoder.run(["latents"], {"frames": frame[None]})[0]  # (1, *Z)


target = np.array([150.0, 80.0])  # behind the wall: the door is the only path
goal = encode(TwoRooms(target, facts["frame_size"]).render())
room = TwoRooms([70.0, 75.0], facts["frame_size"])
frames = [encode(room.render())] * facts["context"]  # before there is a past: the first frame, with zero actions
blocks = [np.tile(-mean / std, block)[None]] * (facts["context"] - 1)
plan = np.zeros((1, facts["horizon"], blocks[0].shape[-1]), np.float32)
executed = facts["horizon"]  # of the last plan: all of it, so nothing remains at the first decision
for decision in range(8):
    problem = {"context": np.stack(frames, axis=1), "past_blocks": np.stack(blocks, axis=1), "goal": goal}
    last = {"last_plan": plan, "executed": np.array([executed])}
    plan, executed = planner.run(["blocks"], problem | last)[0], 1  # (1, H, A), standardized
    for action in plan[0, 0].reshape(block, -1) * std + mean:
        room.step(np.clip(action, facts["action_low"], facts["action_high"]))
    frames, blocks = [*frames[1:], encode(room.render())], [*blocks[1:], plan[:, 0]]
    print(f"after {block * (decision + 1)} actions: {np.linalg.norm(room.position - target):.1f} px from the goal")
