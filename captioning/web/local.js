/* Captions by the model that lies beside the page; see worker.js. */
"use strict";

const captionSource = (() => {
  const waiting = new Map(); // what to do with the answer to each question
  const addresses = new WeakMap(); // of photos, for elements that show them
  const unused = new FinalizationRegistry((address) => URL.revokeObjectURL(address));
  let serial = 0;
  let worker = null;

  const addressOf = (photo) => {
    if (!addresses.has(photo)) {
      addresses.set(photo, URL.createObjectURL(photo));
      unused.register(photo, addresses.get(photo));
    }
    return addresses.get(photo);
  };

  /* Give up all that waits; the next photo starts anew. */
  const fail = (sentence) => {
    for (const { reject } of waiting.values()) reject(new Error(sentence));
    waiting.clear();
    worker?.terminate();
    worker = null;
  };

  const started = () => {
    const made = new Worker("worker.js", { type: "module" });
    made.addEventListener("error", () => fail("The model's program cannot be loaded; reload the " +
      "page, or try a newer browser."));
    made.addEventListener("message", ({ data: { id, loaded, failed, error, view } }) => {
      const asked = waiting.get(id);
      if (failed) fail(failed);
      if (loaded) for (const { tell } of waiting.values()) tell(`Loading the model: ${loaded}`);
      if (error) asked?.reject(new Error(error));
      if (view) asked?.resolve(view);
      if (error || view) waiting.delete(id);
    });
    return made;
  };

  return {
    /* Why no photo can be captioned, or nothing. */
    problem: location.protocol === "file:" ? "Browsers run no model from a file. Open the page " +
      "through a web server, such as python -m http.server in its folder." : null,

    /* What the view shows of a photo; errors are sentences for whoever sees the page. */
    async caption(photo, { beam, captions }, signal, tell, given) {
      worker ??= started();
      const id = (serial += 1);
      signal.addEventListener("abort", () => waiting.delete(id));
      const view = await new Promise((resolve, reject) => {
        waiting.set(id, { resolve, reject, tell });
        const [width, most] = [beam.valueAsNumber, captions.valueAsNumber];
        worker.postMessage({ id, photo, width, most, given });
      });
      return { ...view, photo: addressOf(photo) };
    },
  };
})();
