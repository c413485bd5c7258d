/* The page: photos come in, and their captions are shown. `captionSource` gives these. */

(() => {
  "use strict";

  const { make, nameOf, sentenceOf, spacesOf } = attentionView;
  const { body } = document;
  const [own, form] = document.forms; // a caption to read, and the settings
  const { beam, captions, map, compare } = form.elements;
  const [picker, status, error, list, view] = ["photo", "status", "error", "photos", "view"].map(
    (id) => document.getElementById(id));
  const [hidings, before, hider, unhider] = ["hiding", "before", "hide", "unhide"].map(
    (id) => document.getElementById(id)); // what hides parts of a photo
  const largest = Number(picker.dataset.largest);

  let photos = []; // those that were chosen last
  let asked = 0; // counts what was chosen
  let running = null; // aborts the requests that are under way
  let shown = null; // the photo that the view shows, and its view
  let wanted = []; // the parts of it that are to be hidden, whatever the settings

  for (const { options } of [map, compare]) {
    for (const option of options) {
      if (option.value) option.textContent = nameOf({ map: option.value });
    }
  }

  const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

  const fail = (sentence) => {
    view.replaceChildren();
    hidings.hidden = true;
    status.textContent = "";
    error.textContent = sentence;
  };

  /* Whether the settings are; if not, the browser says which one. */
  const isValid = () => {
    if (!form.checkValidity()) form.closest("details").open = true;
    return form.reportValidity();
  };

  /* What the view shows of a photo; errors are sentences for whoever sees the page. */
  const answered = (photo, signal, given = {}) => {
    if (photo.size > largest) {
      throw new Error(`${photo.name}: ${megabytes(photo.size)} are more than the ` +
        `${megabytes(largest)} that are read; choose a smaller photo`);
    }
    const tell = (state) => { if (!signal.aborted) status.textContent = state; };
    return captionSource.caption(photo, form.elements, signal, tell, given);
  };

  /* Show a photo and its captions; `parts` of it are hidden, and `whole` is what was shown before
     they were. */
  const show = (photo, data, parts = [], whole = data) => {
    const last = shown;
    const isFixed = map.options.length > 0; // the form has them already
    shown = { photo, parts, whole, view: attentionView.mount(view, data, { isFixed, say }) };
    const isSame = last?.photo === photo &&
      last.view.caption.caption === shown.view.caption.caption;
    if (isSame) shown.view.pin(last.view.pinned); // with another map, say
    status.textContent = photo.name;
    for (const card of list.querySelectorAll("button")) {
      card.setAttribute("aria-pressed", String(card.photo === photo));
    }
    showHidden();
  };

  /* What the model said of the whole photo, if it says something else now. */
  const showHidden = () => {
    const { photo, parts, whole, view: now } = shown;
    const was = whole.captions[0];
    const texts = [was, now.caption].map(({ words }) => words.map(({ word }) => word));
    const [kept, left] = hiding.common(...texts);
    const spaces = spacesOf(was);
    const words = was.words.flatMap(({ word }, i) =>
      [spaces[i], make(kept[i] ? "span" : "del", {}, word)]);
    const isSame = [...kept, ...left].every(Boolean);
    const told = isSame ? ["It says the same without."] : ["Before: ", ...words];
    before.replaceChildren(...(parts.length ? told : []));
    now.words.forEach((word, i) => word.classList.toggle("new", parts.length > 0 && !left[i]));
    hidings.hidden = false;
    const watch = () => { hider.disabled = now.root.dataset.word === ""; };
    new MutationObserver(watch).observe(now.root, { attributeFilter: ["data-word"] });
    watch();
    if (document.activeElement === unhider && !parts.length) now.words[0]?.focus();
    unhider.hidden = !parts.length;
    hiding.dragged(now.panes[0].stage, (part) => hide(photo, [...parts, part]));
  };

  /* Ask more about the photo that is shown: what the view shows without some parts, and perhaps
     of `given` words; null if it cannot be asked or another photo is shown meanwhile. */
  const asking = async (parts, given, problems = []) => {
    // Other photos that are captioned now would be given up.
    if (body.classList.contains("busy") || !isValid()) return null;
    const mine = new AbortController();
    const from = shown;
    running = mine;
    wanted = parts;
    error.textContent = problems.join("\n"); // stay to be seen
    body.classList.add("busy");
    status.textContent = `Looking at ${from.photo.name} \u2026`;
    let data = null;
    try {
      const left = parts.length ? await hiding.without(from.photo, parts) : from.photo;
      const isNew = parts.length || Object.keys(given).length;
      data = isNew ? await answered(left, mine.signal, given) : from.whole;
    } catch (problem) {
      if (running === mine) error.textContent = [...problems, problem.message].join("\n");
    }
    if (running !== mine) return null;
    body.classList.remove("busy");
    status.textContent = shown.photo.name;
    return shown === from ? data : null;
  };

  /* Caption the photo again, with these parts hidden. */
  const hide = async (photo, parts, problems) => {
    const { whole } = shown;
    const data = await asking(parts, {}, problems);
    if (data) show(photo, data, parts, whole);
  };

  /* The model's caption that begins with words, its reading of a text, or its review of one. */
  const say = async (given) => (await asking(shown.parts, given))?.captions[0];

  own.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { view: now } = shown;
    const text = own.elements.text.value;
    const caption = await say("reviews" in own.dataset ? { review: text } : { text });
    if (caption) now.add(caption);
  });

  hider.addEventListener("click", () => {
    const { photo, parts, view: now } = shown;
    hide(photo, [...parts, hiding.peakOf(now, Number(now.root.dataset.word))]);
  });
  unhider.addEventListener("click", () => hide(shown.photo, []));

  /* One of several photos with its caption; a click shows it in the view. */
  const card = (photo, data) => {
    const button = make("button", { type: "button", "aria-pressed": "false" },
      make("img", { src: data.photo, alt: photo.name }),
      make("span", { dir: "auto" }, sentenceOf(data.captions[0])));
    button.photo = photo;
    button.addEventListener("click", () => {
      wanted = [];
      show(photo, data);
    });
    return make("li", {}, button);
  };

  const caption = async () => {
    running?.abort();
    running = null;
    body.classList.remove("busy");
    if (!photos.length || !isValid()) return;
    error.textContent = "";
    list.replaceChildren();
    const mine = new AbortController();
    running = mine;
    body.classList.add("busy");
    const problems = [];
    const again = photos.includes(shown?.photo) ? shown.photo : null; // with other settings
    if (!again) wanted = [];
    let isFirst = true;
    for (const [place, photo] of photos.entries()) {
      const which = photos.length > 1 ? `, ${place + 1} of ${photos.length},` : "";
      status.textContent = `Looking at ${photo.name}${which} \u2026`;
      try {
        const data = await answered(photo, mine.signal);
        if (running !== mine) return;
        if (photos.length > 1) list.append(card(photo, data));
        if (again ? photo === again : isFirst) show(photo, data);
        body.classList.add("has-photo");
        isFirst = false;
      } catch (problem) {
        if (running !== mine) return;
        problems.push(problem.message);
      }
    }
    body.classList.remove("busy");
    if (isFirst) fail("");
    else status.textContent = shown.photo.name;
    error.textContent = problems.join("\n");
    if (wanted.length && shown.photo === again) hide(again, wanted, problems);
  };

  const take = (files) => {
    if (!files.length) return;
    asked += 1;
    photos = files;
    caption();
  };

  /* A picture of the page's own is captioned like any photo, unless one was chosen meanwhile. */
  const fetched = async (address, name) => {
    const mine = (asked += 1);
    try {
      const answer = await fetch(address);
      if (!answer.ok) throw new Error(`${name}: the server failed with status ${answer.status}.`);
      const picture = await answer.blob();
      if (asked === mine) take([new File([picture], name, { type: picture.type })]);
    } catch (problem) {
      if (asked === mine) fail(problem.message);
    }
  };
  const examples = document.querySelectorAll("[data-photo], #scene");
  for (const button of examples) {
    button.addEventListener("click", () => {
      const number = Math.floor(Math.random() * 1e6);
      const { photo } = button.dataset;
      fetched(photo ? `photos/${photo}` : `scenes/${number}`, photo ?? `scene ${number}`);
    });
  }
  if (captionSource.problem) fail(captionSource.problem);
  else examples[0]?.click();

  picker.addEventListener("change", () => {
    take([...picker.files]);
    picker.value = ""; // so that choosing the same file again is a change
  });

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
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
