/* Captions by the server's API. */
"use strict";

const captionSource = {
  problem: null, // why no photo can be captioned

  /* What the view shows of a photo; errors are sentences for whoever sees the page. */
  async caption(photo, { kind, beam, temperature, captions, map, compare }, signal) {
    const sent = new FormData();
    sent.append("photo", photo, photo.name);
    sent.append("captions", captions.value);
    if (kind.value === "beam") {
      sent.append("beam", beam.value);
    } else {
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
