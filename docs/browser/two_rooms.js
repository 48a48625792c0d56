// stable-worldmodel's TwoRoom, as in examples/two_rooms.py: a dot in two rooms joined by a door, drawn at 224 px and shrunk.

export const SIDE = 224, WALL_X = 112, WALL_HALF = 5, DOOR_Y = 49, DOOR_HALF = 14, RADIUS = 7, SPEED = 5;
export const EDGE = 14 + RADIUS; // how near the border the dot's center can be
const KEEP_OFF = WALL_HALF + RADIUS + 0.5; // and how near the wall

const clip = (value, low, high) => Math.min(Math.max(value, low), high);
const inWall = (x, y) => Math.abs(x - WALL_X) <= WALL_HALF && Math.abs(y - DOOR_Y) > DOOR_HALF;
const inBorder = (v) => (v >= 10 && v < 14) || (v >= 210 && v < 214);

const FLOOR = new Float64Array(SIDE * SIDE);
for (let y = 0, i = 0; y < SIDE; y++) {
  for (let x = 0; x < SIDE; x++, i++) FLOOR[i] = inWall(x, y) || inBorder(x) || inBorder(y) ? 0 : 255;
}

export class TwoRooms {
  constructor(position, size) {
    this.position = [...position];
    this.size = size;
  }

  step(action) {
    const [before] = this.position;
    const after = this.position.map((p, i) => clip(p + SPEED * clip(action[i], -1, 1), EDGE, SIDE - EDGE));
    if (Math.abs(after[1] - DOOR_Y) > DOOR_HALF + 1.75) { // not at the door
      const left = before < WALL_X;
      const edge = left ? WALL_X - KEEP_OFF : WALL_X + KEEP_OFF;
      if (left ? after[0] > edge + 0.5 : after[0] < edge - 0.5) after[0] = edge;
    }
    this.position = after;
  }

  render() {
    return draw(this.position, this.size);
  }
}

// RGB bytes, rows of `size` pixels.
export function draw([px, py], size) {
  const dot = new Float64Array(SIDE * SIDE);
  let most = 0;
  for (let y = 0, i = 0; y < SIDE; y++) {
    for (let x = 0; x < SIDE; x++, i++) {
      const distance = ((x - px) ** 2 + (y - py) ** 2) / (2 * RADIUS ** 2);
      if (distance > 40) continue; // too faint to change a byte
      dot[i] = Math.exp(-distance);
      if (dot[i] > most) most = dot[i];
    }
  }
  const red = dot.map((d, i) => Math.floor(FLOOR[i] * (1 - d / most) + 255 * d / most));
  const rest = dot.map((d, i) => Math.floor(FLOOR[i] * (1 - d / most)));
  const frame = new Uint8Array(size * size * 3), [reds, rests] = [shrink(red, size), shrink(rest, size)];
  for (let i = 0; i < size * size; i++) {
    frame[3 * i] = Math.round(reds[i]);
    frame[3 * i + 1] = frame[3 * i + 2] = Math.round(rests[i]);
  }
  return frame;
}

// Each small pixel is the mean of what it covers: first along rows, then along columns.
function shrink(picture, size) {
  return transposedMeans(transposedMeans(picture, size), size);
}

function transposedMeans(picture, size) {
  const rows = picture.length / SIDE, scale = SIDE / size, out = new Float64Array(size * rows);
  for (let a = 0; a < size; a++) {
    for (let x = Math.floor(a * scale); x < (a + 1) * scale; x++) {
      const share = (Math.min((a + 1) * scale, x + 1) - Math.max(a * scale, x)) / scale;
      for (let y = 0; y < rows; y++) out[a * rows + y] += share * picture[y * SIDE + x];
    }
  }
  return out;
}

// The nearest place where the dot can be.
export function freePosition([x, y]) {
  const free = [clip(x, EDGE, SIDE - EDGE), clip(y, EDGE, SIDE - EDGE)];
  if (Math.abs(free[1] - DOOR_Y) > DOOR_HALF && Math.abs(free[0] - WALL_X) < KEEP_OFF) {
    free[0] = free[0] < WALL_X ? WALL_X - KEEP_OFF : WALL_X + KEEP_OFF;
  }
  return free;
}

// The fewest actions between two places, through the door where the wall is between them.
export function actionsBetween(a, b) {
  const steps = (p, q) => Math.max(Math.abs(p[0] - q[0]), Math.abs(p[1] - q[1])) / SPEED; // both axes move at once
  if ((a[0] < WALL_X) === (b[0] < WALL_X)) return steps(a, b);
  const door = [WALL_X, DOOR_Y];
  return steps(a, door) + steps(door, b);
}
