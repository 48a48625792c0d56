// The planner's two ONNX files in a thread of their own, so that the page stays smooth while a plan is made.

import * as ort from "./built/ort.wasm.bundle.min.mjs";

const files = (name) => new URL(`./built/${name}`, import.meta.url);
let encoder, planner;

async function load(bytes) {
  const total = Object.values(bytes).reduce((a, b) => a + b), parts = {};
  let received = 0;
  for (const name of ["ort-wasm-simd-threaded.wasm", "encoder.onnx", "plan.onnx"]) {
    const answer = await fetch(files(name));
    if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
    const part = new Uint8Array(bytes[name]), reader = answer.body.getReader();
    for (let at = 0, chunk; !(chunk = await reader.read()).done; at += chunk.value.length) {
      part.set(chunk.value, at);
      received += chunk.value.length;
      postMessage({ loaded: received / total });
    }
    parts[name] = part;
  }
  ort.env.wasm.numThreads = 1; // more would need headers that a plain server does not send
  ort.env.wasm.wasmBinary = parts["ort-wasm-simd-threaded.wasm"].buffer;
  encoder = await ort.InferenceSession.create(parts["encoder.onnx"]);
  planner = await ort.InferenceSession.create(parts["plan.onnx"]);
}

async function encode({ frame, size }) {
  return { latent: (await encoder.run({ frames: new ort.Tensor("uint8", frame, [1, size, size, 3]) })).latents.data };
}

async function plan(problem) {
  const feeds = {};
  for (const [name, { data, shape }] of Object.entries(problem)) {
    feeds[name] = new ort.Tensor(data instanceof BigInt64Array ? "int64" : "float32", data, shape);
  }
  const { blocks, latents, distances } = await planner.run(feeds);
  return { blocks: blocks.data, latents: latents.data, distances: distances.data };
}

const work = { load, encode, plan };

onmessage = async ({ data: { id, kind, content } }) => {
  const began = performance.now();
  try {
    const result = await work[kind](content);
    postMessage({ id, result, ms: performance.now() - began });
  } catch (error) {
    postMessage({ id, error: String(error.message ?? error) });
  }
};
