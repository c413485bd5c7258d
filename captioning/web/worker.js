/* Captions photos in a thread of its own, so that the page stays responsive. */

import * as ort from "./onnxruntime.js";
import { Captioner } from "./captions.js";
import { seen } from "./pixels.js";

const GRAPHS = ["encoder", "remember", "step"];

ort.env.wasm.wasmPaths = { wasm: new URL("onnxruntime.wasm", import.meta.url).href };
// Threads need memory that is shared, which browsers allow only to pages with certain headers.
ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency, 4) : 1;

const megabytes = (bytes) => (bytes / 1e6).toFixed(0);

/* A file beside the page; `count` hears of the bytes of each part. */
const fetched = async (name, count) => {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok) throw new Error(`${name} is missing (status ${answer.status})`);
  const reader = answer.body.getReader();
  const parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Blob(parts);
    parts.push(value);
    count(value.length);
  }
};

/* A graph: as `zipped` in captioning/web/site.py has made it. */
const unpacked = async (file) => {
  const stream = file.stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const half = Math.ceil(planes.length / 2);
  return planes.map((_, place) => planes[(place >> 1) + (place % 2) * half]);
};

const loaded = async (tell) => {
  const about = JSON.parse(await (await fetched("captioner.json", () => {})).text());
  let bytes = 0;
  const count = (part) => {
    bytes += part;
    tell(`${megabytes(bytes)} of ${megabytes(about.bytes)} MB`);
  };
  const files = await Promise.all(GRAPHS.map((name) => fetched(`${name}.packed`, count)));
  const graphs = {};
  for (const [place, name] of GRAPHS.entries()) { // one after another: it starts up only once
    graphs[name] = await ort.InferenceSession.create(await unpacked(files[place]));
  }
  return new Captioner(about, graphs, ort.Tensor);
};

let captioner = null; // promised, once a photo is there
let before = Promise.resolve(); // the photo that is captioned now
let newest = 0; // the page waits for this one only

const answer = async ({ id, photo, width, most, given }) => {
  if (id !== newest) return;
  captioner ??= loaded((state) => self.postMessage({ loaded: state }));
  let ready;
  try {
    ready = await captioner;
  } catch ({ message }) { // the page starts another worker: a runtime that failed stays broken
    const reason = message.replace(/\.*$/, "");
    self.postMessage({ failed: `The model cannot be loaded: ${reason}.` });
    return;
  }
  try {
    const { pixels, ...place } = await seen(photo, ready.about.preprocessing);
    const found = await ready.captions(pixels, width, most, given);
    const { offset, functions } = ready.about;
    self.postMessage({ id, view: { title: "", ...place, offset, captions: found, functions } });
  } catch (problem) {
    self.postMessage({ id, error: problem.message });
  }
};

self.addEventListener("message", ({ data }) => {
  newest = data.id;
  before = before.then(() => answer(data));
});
