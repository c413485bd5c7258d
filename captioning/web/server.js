/* Captions by the server's API. */
"use strict";

const captionSource = {
  problem: null, // why no photo can be captioned

  /* What the view shows of a photo: captions, the best one that begins with given words, or a
     given text; errors are sentences for whoever sees the page. */
  async caption(photo, settings, signal, tell, { begin, text }) {
    const { kind, beam, temperature, captions, map, compare } = settings;
    const sent = new FormData();
    sent.append("photo", photo, photo.name);
    if (text) {
      sent.append("text", text);
    } else if (begin) {
      sent.append("begin", begin);
      sent.append("beam", beam.value);
    } else if (kind.value === "beam") {
      sent.append("captions", captions.value);
      sent.append("beam", beam.value);
    } else {
      sent.append("captions", captions.value);
      sent.append("sample", "true");
      sent.append("temperature", temperature.value);
    }
    sent.append("view", "true");
    sent.append("map", map.value);
    if (compare.value) sent.append("compare", compare.value);
    let answer;
    try {
      answer = await fetch("caption", { method: "POST", body: sent, signal });
    } catch {
      throw new Error("The server cannot be reached; see whether it is running, and try again.");
    }
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) {
      throw new Error(told.error ?? `The server failed with status ${answer.status}.`);
    }
    return told.view;
  },
};
