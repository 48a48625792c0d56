// The page: a clock that moves the dot, pointers and keys that move goal and dot, and the numbers.

import { Controller, Planner } from "./controller.js";
import { Scene, show } from "./scene.js";
import { SPEED, WALL_X, TwoRooms, actionsBetween, draw, freePosition } from "./two_rooms.js";

const TICK_MS = 50, TRAIL = 40, RECENT = 50;
const element = (id) => document.getElementById(id);
const write = (id, text) => { if (element(id).textContent !== text) element(id).textContent = text; };
const apart = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

export const room = new TwoRooms([62, 110], 64);
export const state = { goal: [158, 84], paused: matchMedia("(prefers-reduced-motion: reduce)").matches, held: null };
export let controller;
const scene = new Scene(element("scene"));
let facts, before = room.position, movedAt = 0, goalChanged = true;
let trail = [], plan = [], costs = [], actions = 0, decisions = 0, arrivedAfter = null;

// ---- the controller's clock

async function run() {
  for (let due = performance.now(); ; ) {
    due = Math.max(due + TICK_MS, performance.now());
    await new Promise((resolve) => setTimeout(resolve, due - performance.now()));
    if (state.paused || state.held === "dot" || document.hidden) continue;
    if (goalChanged) {
      goalChanged = false;
      const frame = draw(state.goal, facts.frame_size);
      show(frame, element("goal-frame"));
      await controller.setGoal(frame);
    }
    const action = await controller.act(look, decided);
    while (state.held === "dot" || state.paused) await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    trail = [...trail, room.position].slice(-TRAIL);
    before = room.position;
    room.step(action);
    movedAt = performance.now();
    actions += 1;
    tell();
  }
}

function look() {
  const frame = room.render();
  show(frame, element("frame"));
  return frame;
}

function decided(decision) {
  plan = decision.positions;
  decisions += 1;
  costs = [...costs, decision.encodeMs + decision.planMs].slice(-RECENT);
  const middle = [...costs].sort((a, b) => a - b)[Math.floor(costs.length / 2)];
  write("ms", middle < 10 ? middle.toFixed(1) : middle.toFixed(0));
  write("ms-note", `median of the last ${costs.length}`);
}

// ---- what the page says

function tell() {
  const distance = apart(room.position, state.goal), reach = facts.horizon * facts.block;
  if (arrivedAfter === null && distance < facts.success_px) arrivedAfter = actions;
  const still = actions >= reach && trail.length >= reach && apart(trail.at(-reach), room.position) < SPEED;
  const far = actionsBetween(room.position, state.goal) > reach;
  const farther = `The goal is farther away than a plan of ${reach} actions reaches.`;
  write("distance", distance.toFixed(distance < 10 ? 1 : 0));
  write("actions", actions.toLocaleString("en"));
  write("actions-note", count(decisions, "decision"));
  scene.canvas.dataset.arrived = distance < facts.success_px;
  let text = far ? `On the way. ${farther}` : "On the way.";
  if (distance < facts.success_px) text = arrivedAfter ? `Arrived after ${count(arrivedAfter, "action")}; it stays there.` : "There.";
  else if (state.held === "dot") text = "You hold the dot; the controller waits.";
  else if (still) text = `Stuck. ${far ? `${farther} ` : ""}Set another goal, or drag the dot.`;
  write("status", state.paused ? "Paused." : text);
}

function frame(now) {
  const share = Math.min((now - movedAt) / TICK_MS, 1);
  const dot = room.position.map((p, i) => before[i] + Math.max(share, 0) * (p - before[i]));
  scene.draw({ dot, goal: state.goal, trail, plan: plan.slice(controller?.executed), reach: facts.horizon * facts.block, arrived: apart(dot, state.goal) < facts.success_px });
  requestAnimationFrame(frame);
}

// ---- what people do

function moveGoal(place) {
  state.goal = freePosition(place);
  goalChanged = true;
  actions = decisions = 0;
  arrivedAfter = null;
  tell();
}

function moveDot(place) {
  room.position = before = freePosition(place);
  trail = [];
  arrivedAfter = null;
  tell();
}

const move = { goal: moveGoal, dot: moveDot };

function near(event) {
  return apart(scene.place(event), room.position) < (event.pointerType === "touch" ? 18 : 12) ? "dot" : "goal";
}

scene.canvas.onpointerdown = (event) => {
  if (!controller) return;
  state.held = near(event);
  scene.canvas.setPointerCapture(event.pointerId);
  if (state.held === "goal") moveGoal(scene.place(event));
};
scene.canvas.onpointermove = (event) => {
  scene.canvas.style.cursor = state.held === "dot" ? "grabbing" : near(event) === "dot" ? "grab" : "crosshair";
  if (state.held) move[state.held](scene.place(event));
};
scene.canvas.onlostpointercapture = () => { state.held = null; };

scene.canvas.onkeydown = (event) => {
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!controller || !(way || event.key === " ")) return;
  event.preventDefault();
  if (!way) return element("pause").click();
  const moved = event.shiftKey ? "dot" : "goal", from = moved === "dot" ? room.position : state.goal;
  const to = freePosition(from.map((p, i) => p + 6 * way[i]));
  // a step into the wall leads to its other side
  move[moved](apart(to, from) < 1 ? from.map((p, i) => p + 30 * way[i]) : to);
};

element("pause").onclick = () => {
  state.paused = !state.paused;
  write("pause", state.paused ? "Go on" : "Pause");
  tell();
};
element("push").onclick = () => {
  const angle = 2 * Math.PI * Math.random();
  const [x, y] = room.position, to = freePosition([x + 40 * Math.cos(angle), y + 40 * Math.sin(angle)]);
  moveDot((to[0] < WALL_X) === (x < WALL_X) ? to : [2 * x - to[0], to[1]]); // within its room
};
element("new-goal").onclick = () => {
  const reach = facts.horizon * facts.block;
  let place;
  do place = freePosition([24 + 176 * Math.random(), 24 + 176 * Math.random()]);
  while (actionsBetween(room.position, place) > reach || apart(room.position, place) < 50);
  moveGoal(place);
};
element("interval").onchange = (event) => { controller.execute = Number(event.target.value); };

// ---- loading

async function start() {
  const answer = await fetch(new URL("./built/facts.json", import.meta.url));
  if (!answer.ok) return document.body.classList.add("unbuilt");
  facts = await answer.json();
  for (const node of document.querySelectorAll("[data-fact]")) {
    const value = node.dataset.fact.split(".").reduce((part, name) => part[name], facts);
    node.textContent = typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 1 }) : value;
  }
  write("digest", facts.digest.slice(0, 12));
  write("lookahead", String(facts.horizon * facts.block));
  for (let m = 1; m <= facts.horizon; m++) {
    const label = document.createElement("label"), input = document.createElement("input");
    Object.assign(input, { type: "radio", name: "m", value: m, checked: m === 1, disabled: true });
    label.append(input, Object.assign(document.createElement("span"), { textContent: m }));
    element("interval").append(label);
  }
  room.size = facts.frame_size;
  for (const id of ["frame", "goal-frame"]) element(id).width = element(id).height = facts.frame_size;
  requestAnimationFrame(frame);
  const total = Object.values(facts.bytes).reduce((a, b) => a + b) / 1e6;
  const planner = await Planner.load(facts, (share) => {
    element("progress").value = share;
    write("status", `Loading the planner: ${(share * total).toFixed(0)} of ${total.toFixed(0)} MB`);
  });
  controller = new Controller(planner);
  document.body.classList.add("ready");
  for (const node of document.querySelectorAll("button, input")) node.disabled = false;
  write("pause", state.paused ? "Go on" : "Pause");
  tell();
  await run();
}

start().catch((error) => write("status", `This browser could not run the planner: ${error.message}`));
