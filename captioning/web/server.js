/* Captions by the server's API. */
"use strict";

const captionSource = {
  problem: null, // why no photo can be captioned

  /* What the view shows of a photo: captions, the best one that begins with given words, or a
     given text, read or under review; errors are sentences for whoever sees the page. */
  async caption(photo, settings, signal, tell, { begin, text, review }) {
    const { kind, beam, temperature, captions, map, compare } = settings;
    const fields = { view: true, map: map.value };
    if (compare.value) fields.compare = compare.value;
    const [width, most] = [beam.value, captions.value];
    if (review) Object.assign(fields, { text: review });
    else if (text) Object.assign(fields, { text });
    else if (begin) Object.assign(fields, { begin, beam: width });
    else if (kind.value === "beam") Object.assign(fields, { captions: most, beam: width });
    else Object.assign(fields, { captions: most, sample: true, temperature: temperature.value });
    const sent = new FormData();
    sent.append("photo", photo, photo.name);
    for (const [name, value] of Object.entries(fields)) sent.append(name, value);
    let answer;
    try {
      answer = await fetch(review ? "review" : "caption", { method: "POST", body: sent, signal });
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
