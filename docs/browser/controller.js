// Receding-horizon control, as in examples/control_with_onnx.py: the last frames and blocks in, one action at a time out.

export class Planner {
  // `facts`: what scripts/browser_page.py wrote; `progress` gets the loaded share of all files.
  static async load(facts, progress = () => {}) {
    const planner = new Planner(facts, progress);
    await planner.ask("load", facts.bytes);
    return planner;
  }

  constructor(facts, progress) {
    this.facts = facts;
    this.asked = new Map();
    this.worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => {
      if ("loaded" in data) return progress(data.loaded);
      const { resolve, reject } = this.asked.get(data.id);
      this.asked.delete(data.id);
      return data.error ? reject(new Error(data.error)) : resolve({ ...data.result, ms: data.ms });
    };
    this.worker.onerror = () => this.asked.forEach(({ reject }) => reject(new Error("worker.js could not be started")));
  }

  ask(kind, content) {
    const id = (this.count = (this.count ?? 0) + 1);
    return new Promise((resolve, reject) => {
      this.asked.set(id, { resolve, reject });
      this.worker.postMessage({ id, kind, content });
    });
  }

  encode(frame) {
    return this.ask("encode", { frame, size: this.facts.frame_size });
  }

  // Latents and standardized blocks, one Float32Array each, oldest first; the last plan, and how many of its blocks were
  // executed: where what remains of it is imagined to end nearer the goal than the new plan, it is kept.
  plan(context, pastBlocks, goal, lastPlan, executed) {
    const stacked = (rows) => ({ data: Float32Array.from(rows.flatMap((row) => [...row])), shape: [1, rows.length, rows[0].length] });
    return this.ask("plan", {
      context: stacked(context),
      past_blocks: stacked(pastBlocks),
      goal: { data: goal, shape: [1, goal.length] },
      last_plan: { data: lastPlan, shape: [1, this.facts.horizon, pastBlocks[0].length] },
      executed: { data: BigInt64Array.of(BigInt(executed)), shape: [1] },
    });
  }

  // Where the dot is in each of several latents: [x, y] in px of the floor plan.
  positions(latents) {
    const { weights, offset } = this.facts.probe, width = weights[0].length, found = [];
    for (let at = 0; at < latents.length; at += width) {
      found.push(weights.map((row, axis) => row.reduce((sum, w, i) => sum + w * latents[at + i], offset[axis])));
    }
    return found;
  }
}

export class Controller {
  constructor(planner, execute = 1) {
    this.planner = planner;
    this.facts = planner.facts;
    this.execute = execute; // m, blocks between decisions
    this.frames = []; // latents a block apart
    this.blocks = []; // standardized blocks between them
    this.queue = []; // raw actions still to execute
    this.done = []; // raw actions of the current block
    this.encodeMs = 0;
    this.lastPlan = new Float32Array(this.facts.horizon * this.facts.block * this.facts.action_mean.length);
    this.executed = this.facts.horizon; // blocks of the last plan: all of it, so nothing remains at the first decision
  }

  async setGoal(frame) {
    this.goal = (await this.planner.encode(frame)).latent;
    this.goalChanged = true;
  }

  // The next raw action. `look` gives the current frame, and `decided` gets each new plan and what it cost.
  async act(look, decided = () => {}) {
    const { block } = this.facts;
    if (this.queue.length % block === 0) {
      const { latent, ms } = await this.planner.encode(look());
      this.frames = [...this.frames, latent].slice(-this.facts.context);
      this.encodeMs += ms;
      if (!this.queue.length || this.goalChanged) decided(await this.decide());
    }
    const action = this.queue.shift();
    this.done.push(action);
    if (this.done.length === block) {
      this.blocks = [...this.blocks, this.standardized(this.done)].slice(1 - this.facts.context);
      this.done = [];
      this.executed = Math.min(this.executed + 1, this.facts.horizon);
    }
    return action;
  }

  async decide() {
    const { context, block, horizon, action_mean: mean, action_std: std, action_low: low, action_high: high } = this.facts;
    const zeros = this.standardized(Array(block).fill(mean.map(() => 0)));
    const missing = context - this.frames.length; // before there is a past: the first frame, with zero actions
    const frames = [...Array(missing).fill(this.frames[0]), ...this.frames];
    const blocks = [...Array(missing).fill(zeros), ...this.blocks];
    const executed = this.goalChanged ? horizon : this.executed; // a plan to another goal is not kept
    this.goalChanged = false;
    const plan = await this.planner.plan(frames, blocks, this.goal, this.lastPlan, executed);
    const width = mean.length, actions = [];
    for (let at = 0; at < this.execute * block * width; at += width) {
      actions.push(mean.map((m, i) => Math.min(Math.max(plan.blocks[at + i] * std[i] + m, low[i]), high[i])));
    }
    this.queue = actions;
    this.lastPlan = plan.blocks;
    this.executed = 0;
    const cost = { encodeMs: this.encodeMs, planMs: plan.ms };
    this.encodeMs = 0;
    return { ...plan, ...cost, positions: this.planner.positions(plan.latents) };
  }

  standardized(actions) {
    const { action_mean: mean, action_std: std } = this.facts;
    return Float32Array.from(actions.flatMap((action) => action.map((a, i) => (a - mean[i]) / std[i])));
  }
}
