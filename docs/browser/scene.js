// Draws the rooms, the dot, its goal and what the controller imagines, in units of the 224 px floor plan.

import { DOOR_HALF, DOOR_Y, RADIUS, SIDE, SPEED, WALL_HALF, WALL_X } from "./two_rooms.js";

const MARGIN = 8; // of the floor plan that is not shown: nothing is there
const SHOWN = SIDE - 2 * MARGIN;

export class Scene {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  // Where on the floor plan a pointer is.
  place(event) {
    const box = this.canvas.getBoundingClientRect(), scale = SHOWN / box.width;
    return [(event.clientX - box.left) * scale + MARGIN, (event.clientY - box.top) * scale + MARGIN];
  }

  // `view`: dot, goal, trail, plan (positions to come), reach (actions in a plan), arrived.
  draw(view) {
    const { canvas, context: c } = this, side = Math.round(canvas.clientWidth * devicePixelRatio);
    if (canvas.width !== side) canvas.width = canvas.height = side;
    const style = getComputedStyle(canvas);
    this.color = (name) => style.getPropertyValue(`--${name}`);
    const scale = side / SHOWN;
    c.setTransform(scale, 0, 0, scale, -MARGIN * scale, -MARGIN * scale);
    c.fillStyle = this.color("floor");
    c.fillRect(0, 0, SIDE, SIDE);
    this.beyond(view.dot, view.reach * SPEED);
    this.walls();
    this.trail([...view.trail, view.dot]);
    this.goal(view.goal, view.arrived);
    this.plan(view.dot, view.plan);
    this.dot(view.dot);
  }

  // Shades what no plan can reach at full speed. Within reach is a square, since both axes move at once, and through
  // the door a square around the door with what is left.
  beyond(dot, distance) {
    const c = this.context, door = [WALL_X, DOOR_Y], left = dot[0] < WALL_X;
    const rest = distance - Math.max(Math.abs(dot[0] - WALL_X), Math.abs(dot[1] - DOOR_Y));
    c.fillStyle = this.color("beyond");
    for (const [[x, y], half, from] of [[dot, distance, left ? 14 : WALL_X], [door, Math.max(rest, 0), left ? WALL_X : 14]]) {
      c.save();
      c.beginPath();
      c.rect(from, 14, WALL_X - 14, SIDE - 28);
      c.clip();
      c.beginPath();
      c.rect(0, 0, SIDE, SIDE);
      c.rect(x - half, y - half, 2 * half, 2 * half);
      c.fill("evenodd");
      c.restore();
    }
  }

  walls() {
    const c = this.context, top = DOOR_Y - DOOR_HALF, bottom = DOOR_Y + DOOR_HALF + 1;
    c.strokeStyle = c.fillStyle = this.color("wall");
    c.lineWidth = 4;
    c.beginPath();
    c.roundRect(12, 12, SIDE - 24, SIDE - 24, 2);
    c.stroke();
    for (const [from, to] of [[12, top], [bottom, SIDE - 12]]) {
      c.beginPath();
      c.roundRect(WALL_X - WALL_HALF, from, 2 * WALL_HALF + 1, to - from, 1.5);
      c.fill();
    }
  }

  trail(places) {
    const c = this.context;
    c.strokeStyle = this.color("dot");
    c.lineWidth = 1.4;
    c.lineCap = "round";
    for (let i = 1; i < places.length; i++) {
      c.globalAlpha = (0.45 * i) / places.length;
      c.beginPath();
      c.moveTo(...places[i - 1]);
      c.lineTo(...places[i]);
      c.stroke();
    }
    c.globalAlpha = 1;
  }

  goal([x, y], arrived) {
    const c = this.context;
    c.strokeStyle = c.fillStyle = this.color("goal");
    c.lineWidth = 1.6;
    c.beginPath();
    c.arc(x, y, RADIUS + 2.5, 0, 2 * Math.PI);
    c.globalAlpha = arrived ? 0.35 : 0.14;
    c.fill();
    c.globalAlpha = 1;
    c.stroke();
    c.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      c.moveTo(x + dx * (RADIUS + 0.5), y + dy * (RADIUS + 0.5));
      c.lineTo(x + dx * (RADIUS + 5), y + dy * (RADIUS + 5));
    }
    c.stroke();
  }

  plan(dot, places) {
    const c = this.context;
    c.strokeStyle = c.fillStyle = this.color("plan");
    let before = dot;
    places.forEach((place, i) => {
      const fresh = 1 - i / (places.length + 1);
      c.globalAlpha = 0.45 * fresh;
      c.lineWidth = 1;
      c.setLineDash([2, 2]);
      c.beginPath();
      c.moveTo(...before);
      c.lineTo(...place);
      c.stroke();
      c.setLineDash([]);
      c.globalAlpha = 0.25 + 0.75 * fresh;
      c.beginPath();
      c.arc(...place, 1.6 + 2.4 * fresh, 0, 2 * Math.PI);
      c.fill();
      before = place;
    });
    c.globalAlpha = 1;
  }

  dot([x, y]) {
    const c = this.context, glow = c.createRadialGradient(x, y, 0, x, y, 1.6 * RADIUS);
    glow.addColorStop(0, this.color("dot"));
    glow.addColorStop(0.55, this.color("dot"));
    glow.addColorStop(1, this.color("dot-fade"));
    c.fillStyle = glow;
    c.beginPath();
    c.arc(x, y, 1.6 * RADIUS, 0, 2 * Math.PI);
    c.fill();
  }
}

// RGB bytes of a frame into a small canvas, pixel by pixel: what the encoder gets.
export function show(frame, canvas) {
  const size = canvas.width, picture = new ImageData(size, size);
  for (let i = 0; i < size * size; i++) picture.data.set([frame[3 * i], frame[3 * i + 1], frame[3 * i + 2], 255], 4 * i);
  canvas.getContext("2d").putImageData(picture, 0, 0);
}
