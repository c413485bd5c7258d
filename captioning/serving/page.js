/* The page of the server: a photo goes out, its captions come back and are shown. */

(() => {
  "use strict";

  const form = document.querySelector("form");
  const picker = document.getElementById("photo");
  const status = document.getElementById("status");
  const error = document.getElementById("error");
  const view = document.getElementById("view");
  const scene = document.getElementById("scene");
  const { body } = document;
  const { kind, beam, temperature, captions, map, compare } = form.elements;
  const largest = Number(form.dataset.largest);

  let photo = null;
  let running = null; // aborts the request that is under way
  let shown = null; // the view of the last answer, and its photo

  for (const { options } of [map, compare]) {
    for (const option of options) {
      if (option.value) option.textContent = attentionView.nameOf({ map: option.value });
    }
  }

  const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

  const fail = (sentence) => {
    view.replaceChildren();
    status.textContent = "";
    error.textContent = sentence;
  };

  const fields = () => {
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
    return sent;
  };

  /* What the server says, whatever it is; errors are sentences for whoever sees the page. */
  const answered = async (signal) => {
    let answer;
    try {
      answer = await fetch("caption", { method: "POST", body: fields(), signal });
    } catch {
      throw new Error("The server cannot be reached; see whether it is running, and try again.");
    }
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(told.error ?? `The server failed with status ${answer.status}.`);
    return told;
  };

  const caption = async () => {
    running?.abort();
    running = null;
    body.classList.remove("busy");
    if (!photo || !form.reportValidity()) return;
    error.textContent = "";
    if (photo.size > largest) {
      fail(`${photo.name}: ${megabytes(photo.size)} are more than the ${megabytes(largest)} ` +
        "that the server reads; choose a smaller photo");
      return;
    }
    const mine = new AbortController();
    running = mine;
    status.textContent = `Looking at ${photo.name} \u2026`;
    body.classList.add("busy");
    try {
      const told = await answered(mine.signal);
      if (running !== mine) return;
      const before = shown;
      shown = { photo, view: attentionView.mount(view, told.view) };
      const isSame = before?.photo === photo &&
        before.view.caption.caption === shown.view.caption.caption;
      if (isSame) shown.view.pin(before.view.pinned); // with another map, say
      status.textContent = photo.name;
      body.classList.add("has-photo");
    } catch (problem) {
      if (running === mine) fail(problem.message);
    } finally {
      if (running === mine) body.classList.remove("busy");
    }
  };

  const take = (files) => {
    if (!files.length) return;
    [photo] = files;
    caption();
  };

  /* A picture of the server's own is captioned like any photo. */
  const fetched = async (address, name) => {
    try {
      const answer = await fetch(address);
      if (!answer.ok) throw new Error(`The server failed with status ${answer.status}.`);
      const picture = await answer.blob();
      take([new File([picture], name, { type: picture.type })]);
    } catch (problem) {
      fail(problem.message);
    }
  };
  const examples = [...document.querySelectorAll("[data-photo]")];
  for (const button of examples) {
    const { photo: name } = button.dataset;
    button.addEventListener("click", () => fetched(`photos/${name}`, name));
  }
  if (examples.length) examples[0].click();
  const draw = () => {
    const number = Math.floor(Math.random() * 1e6);
    fetched(`scenes/${number}`, `scene ${number}`);
  };
  if (!scene.parentElement.hidden) {
    scene.addEventListener("click", draw);
    draw();
  }

  picker.addEventListener("change", () => {
    take([...picker.files]);
    picker.value = ""; // so that choosing the same file again is a change
  });

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    if (event.target === picker) return;
    // A beam finds as many captions as it is wide: the one that was not touched gives way.
    if (Number(captions.value) > Number(beam.value)) {
      if (event.target === beam) captions.value = beam.value;
      else beam.value = captions.value;
    }
    caption();
  });

  document.addEventListener("paste", (event) => take([...event.clipboardData.files]));

  let depth = 0; // of elements that the dragged photo is over; leaving one may enter another
  const isPhoto = (event) => [...event.dataTransfer.types].includes("Files");
  const drag = (change) => (event) => {
    if (!isPhoto(event)) return;
    event.preventDefault();
    depth = Math.max(depth + change, 0);
    body.classList.toggle("dragging", depth > 0);
  };
  document.addEventListener("dragenter", drag(1));
  document.addEventListener("dragleave", drag(-1));
  document.addEventListener("dragover", drag(0));
  document.addEventListener("drop", (event) => {
    if (!isPhoto(event)) return;
    event.preventDefault();
    depth = 0;
    body.classList.remove("dragging");
    take([...event.dataTransfer.files]);
  });
})();
