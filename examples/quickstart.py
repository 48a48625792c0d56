import numpy as np

import leplanner as lp

planner = lp.load("tworoom")  # shipped: tworoom, pusht, reacher, cube; or a bundle folder, or a Hugging Face id
room = lp.get_task("tworoom").simulate()
room.set_state(np.array([170.0, 60.0]))
goal = room.render(64)  # a picture of where to be
room.set_state(np.array([60.0, 80.0]))  # in the other room

controller = planner.controller(goal, execute=1)  # replans after one block of five actions
for _ in range(60):
    room.step(controller.act(room.render(64)))  # an image in, a raw environment action out
print(room.state())
